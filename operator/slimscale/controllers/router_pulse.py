"""Asks the routers of services that have no pod, every two seconds, and brings the next look forward.

A first request waits in a router until there is a pod; a regular look may be ten seconds away. Asking
costs a read of each router and none of the API server. With pods there, the regular looks are enough:
what looking every two seconds would buy is measured in docs/results/autoscaling.md.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.controllers.queue import Key
from slimscale.domain.inference import InferenceObservation, RouterReport
from slimscale.domain.scaling import ScalingDecision
from slimscale.kubeapi.ports import Json
from slimscale.observe.inference import RouterSource, router_pods

__all__ = ["PULSE_SECONDS", "RouterPulse"]

_log = logging.getLogger(__name__)

PULSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class _Empty:
    """A service without a pod, and the routers that would hold its first request."""

    routers: tuple[Json, ...]
    spec: SlimInferenceSpec


class RouterPulse:
    """`wake` brings a look forward. One for the operator."""

    def __init__(
        self, routers: RouterSource, *, wake: Callable[[Key], None], lease_held: Callable[[], bool]
    ) -> None:
        self._routers = routers
        self._wake = wake
        self._lease_held = lease_held
        self._empty: dict[Key, _Empty] = {}

    def follow(
        self,
        key: Key,
        observation: InferenceObservation,
        decision: ScalingDecision,
        spec: SlimInferenceSpec,
    ) -> None:
        """After each look: ask from now on, or no longer."""
        routers = router_pods(observation.pods)
        if routers and not any(pool.replicas for pool in decision.pools):
            self._empty[key] = _Empty(tuple(routers), spec)
        else:
            self.forget(key)

    def forget(self, key: Key) -> None:
        self._empty.pop(key, None)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(PULSE_SECONDS)
            await self.beat()

    async def beat(self) -> None:
        """Ask once. A service whose request waits is asked again only after its look."""
        if not self._lease_held():
            return
        await asyncio.gather(*(self._ask(key, empty) for key, empty in self._empty.items()))

    async def _ask(self, key: Key, empty: _Empty) -> None:
        reports = await self._routers.fetch(empty.routers, empty.spec)
        if self._empty.get(key) is empty and any(map(_waits, reports)):
            self.forget(key)
            _log.info("a request has come and there is no pod", extra={"object": "/".join(key)})
            self._wake(key)


def _waits(report: RouterReport) -> bool:
    return report.buffered_rows > 0 or (report.panic_rows_per_second or 0.0) > 0.0
