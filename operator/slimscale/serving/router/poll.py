"""Asks pods that have not been heard of for a while how they are: idle ones, new ones, ejected ones.

Pods that are not ready are asked too: one that has lost its GPU says so there, and gets replaced.
"""

import asyncio
from collections.abc import Callable

from slimscale.serving.headers import POOL
from slimscale.serving.http import ClientPool, ExchangeFailed
from slimscale.serving.router.pods import Pod, Pods

__all__ = ["Poller"]

_LONGEST_ANSWER_SECONDS = 1.0


class Poller:
    """`seconds()` is the present interval. A ready pod that can't be reached counts as failing."""

    def __init__(self, pods: Pods, client: ClientPool, *, seconds: Callable[[], float]) -> None:
        self._pods = pods
        self._client = client
        self._seconds = seconds
        self._asking: dict[Pod, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Never returns."""
        try:
            while True:
                await asyncio.sleep(self._seconds() / 2.0)
                self.ask_quiet_ones()
        finally:
            for task in tuple(self._asking.values()):
                task.cancel()

    def ask_quiet_ones(self) -> None:
        """Start asking each pod whose last word is older than the interval."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._seconds()
        for pod in self._pods:
            quiet = pod.heard_at < oldest
            if quiet and pod not in self._asking:
                self._asking[pod] = loop.create_task(self._ask(pod))

    async def _ask(self, pod: Pod) -> None:
        try:
            await self._ask_now(pod)
        finally:
            self._asking.pop(pod, None)

    async def _ask_now(self, pod: Pod) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            reply = await self._client.request(
                b"GET",
                pod.host,
                pod.port,
                b"/telemetry",
                timeout_seconds=max(0.05, min(_LONGEST_ANSWER_SECONDS, self._seconds())),
            )
        except ExchangeFailed as error:
            if not pod.endpoint.ready:
                pod.heard_at = loop.time()  # starting or ending: not sooner again than others
                return
            self._pods.failed(pod, now=loop.time())
            if not error.sent:
                pod.unreachable(now=loop.time())
            return
        now = loop.time()
        pod.reached()
        if reply.status != 200:
            return
        pool = reply.headers.get(POOL)
        if pool is not None:
            self._pods.belongs_to(pod, pool)
        pod.told(reply.body, now=now)
        pod.measured_link(now - began)
