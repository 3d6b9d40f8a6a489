"""One writer at any time: a Lease, held or the process ends.

Deadlines are monotonic, so a step of the wall clock changes nothing. A holder stops believing in
its lease `margin_seconds` before anyone else may take it, counted from *before* the renewing
request was sent. A candidate waits for the duration that stands in the Lease, whatever its own
setting, counted from when it saw the Lease change last: no clock is compared with another machine's.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

from slimscale.domain.clock import Clock
from slimscale.exceptions import SlimError
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["LEASE_NAME", "Leadership", "LeaseTimes"]

LEASE_NAME = "slimscale-operator"
_API = "coordination.k8s.io/v1"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    duration_seconds: int = 20
    renew_deadline_seconds: float = 12.0
    """A holder that has not renewed for so long gives up."""
    retry_seconds: float = 3.0
    call_timeout_seconds: float = 5.0
    """Of this and of every other write: the client's own limit must not be above it."""

    def __post_init__(self) -> None:
        # A write that began at the last moment may still be under way until its own time-out.
        if self.renew_deadline_seconds + self.call_timeout_seconds >= self.duration_seconds:
            raise ValueError(
                f"lease: renewDeadline {self.renew_deadline_seconds} plus the time-out of a call"
                f" {self.call_timeout_seconds} must be below duration {self.duration_seconds}"
            )
        if self.retry_seconds + self.call_timeout_seconds >= self.renew_deadline_seconds:
            raise ValueError(
                f"lease: retry {self.retry_seconds} plus the time-out of a call"
                f" {self.call_timeout_seconds} must be below renewDeadline"
                f" {self.renew_deadline_seconds}"
            )


class Leadership:
    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        *,
        namespace: str,
        identity: str,
        on_lost: Callable[[str], None],
        rng: Random,
        times: LeaseTimes = LeaseTimes(),
        lease_name: str = LEASE_NAME,
    ) -> None:
        """identity is unique to this process (pod name and a random part).

        on_lost must end the process at once; it gets the reason.
        """
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._identity = identity
        self._on_lost = on_lost
        self._rng = rng
        self._times = times
        self._name = lease_name
        self._renewed_at_seconds: float | None = None
        self._seen: tuple[str, float] | None = None
        """Another holder's resourceVersion and when we first saw it, monotonic."""
        self._acquired = asyncio.Event()

    def held(self) -> bool:
        """May be asked before every write: takes no time and needs no network."""
        renewed = self._renewed_at_seconds
        if renewed is None:
            return False
        return self._clock.monotonic_seconds() - renewed < self._times.renew_deadline_seconds

    async def acquired(self) -> None:
        await self._acquired.wait()

    async def run(self) -> None:
        """Acquire, then renew until cancelled or lost."""
        while True:
            await self.step()
            pause = self._times.retry_seconds * (1.0 + 0.1 * self._rng.random())
            await asyncio.sleep(pause)

    async def step(self) -> None:
        """One attempt to acquire or renew."""
        started = self._clock.monotonic_seconds()
        was_leader = self._renewed_at_seconds is not None
        if was_leader and not self.held():
            self._lost("it was not renewed in time")
            return
        try:
            async with asyncio.timeout(self._times.call_timeout_seconds):
                mine = await self._acquire_or_renew()
        except (SlimError, TimeoutError) as error:
            # A Conflict too is no renewal: someone else wrote in between, the next look tells.
            _log.warning("lease not reached", extra={"error": type(error).__name__})
            if was_leader and not self.held():
                self._lost("it could not be renewed in time")
            return
        if mine:
            self._renewed_at_seconds = started
            if not self._acquired.is_set():
                _log.info("lease acquired", extra={"lease": self._name})
                self._acquired.set()
        elif was_leader:
            self._lost("another process holds it")

    async def release(self) -> None:
        """At an orderly end: let the next one start without waiting. No write follows this."""
        if self._renewed_at_seconds is None:
            return
        self._renewed_at_seconds = None
        path = item(_API, "leases", self._name, self._namespace)
        try:
            async with asyncio.timeout(self._times.call_timeout_seconds):
                lease = await self._client.get(path)
                if lease is not None and _holder(lease) == self._identity:
                    lease["spec"]["holderIdentity"] = ""
                    await self._client.replace(path, lease)
        except (SlimError, TimeoutError):
            _log.warning("lease not released; it runs out by itself")

    def _lost(self, reason: str) -> None:
        self._renewed_at_seconds = None
        _log.error("lease lost, ending", extra={"reason": reason})
        self._on_lost(reason)

    async def _acquire_or_renew(self) -> bool:
        path = item(_API, "leases", self._name, self._namespace)
        lease = await self._client.get(path)
        if lease is None:
            body = self._lease(acquired=True)
            await self._client.create(collection(_API, "leases", self._namespace), body)
            return True
        holder = _holder(lease)
        if holder and holder != self._identity and not self._has_run_out(lease):
            return False
        fresh = self._lease(acquired=holder != self._identity, previous=lease)
        # Carries the resourceVersion that was read: of two candidates one gets a Conflict.
        await self._client.replace(path, fresh)
        return True

    def _has_run_out(self, lease: Json) -> bool:
        version = str(lease["metadata"].get("resourceVersion", ""))
        now = self._clock.monotonic_seconds()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now)
        duration = (lease.get("spec") or {}).get("leaseDurationSeconds")
        wait = float(duration or self._times.duration_seconds)
        return now - self._seen[1] > wait

    def _lease(self, *, acquired: bool, previous: Json | None = None) -> Json:
        now = datetime.fromtimestamp(self._clock.now_seconds(), UTC)
        stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before: Json = (previous or {}).get("spec") or {}
        transitions = int(before.get("leaseTransitions") or 0)
        metadata: Json = (previous or {}).get("metadata") or {
            "name": self._name,
            "namespace": self._namespace,
        }
        return {
            "apiVersion": _API,
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                **before,
                "holderIdentity": self._identity,
                "leaseDurationSeconds": self._times.duration_seconds,
                "acquireTime": stamp if acquired else before.get("acquireTime", stamp),
                "renewTime": stamp,
                "leaseTransitions": transitions + int(acquired and previous is not None),
            },
        }


def _holder(lease: Json) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")
