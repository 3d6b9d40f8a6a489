"""A whole router in the test's own loop, in front of fake sidecars."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from slimscale.serving.http import ClientPool, ClientResponse
from slimscale.serving.router.app import Router
from slimscale.serving.router.settings import RouterSettings
from slimscale.serving.router.state import RouterState
from tests.support.fake_sidecar import FakeSidecar, body_of
from tests.support.learned_policies import fake_candidates
from tests.support.routing_cases import WIDTHS

__all__ = ["RouterUnderTest", "router_config", "running_router", "until"]


async def until(holds: Callable[[], object]) -> None:
    """Let everybody work until it holds; pytest's time-out ends what never does."""
    while not holds():  # noqa: ASYNC110 - what is looked at tells nobody
        await asyncio.sleep(0)


def router_config(**changes: Any) -> dict[str, Any]:
    """router.json of a service `digits`; telemetry is asked for once and then left alone."""
    return {
        "service": "digits",
        "namespace": "default",
        "endpointsService": "digits-pods",
        "widths": [
            {
                "ratio": width.ratio,
                "model": width.model,
                "accuracy": width.accuracy,
                "flopsRatio": width.flops_ratio,
            }
            for width in WIDTHS
        ],
        "pools": [{"name": "cpu"}, {"name": "gpu"}],
        "telemetryPollSeconds": 60,
    } | changes


class RouterUnderTest:
    """`router` and what a client does with it."""

    def __init__(self, router: Router, config_file: Path) -> None:
        self.router = router
        self.config_file = config_file
        self.client = ClientPool(per_host=1000, connect_seconds=30.0)

    async def infer(self, body: bytes | None = None, **headers: str) -> ClientResponse:
        """Header names in Python's spelling: slimscale_slo="gold"."""
        pairs = [
            (name.replace("_", "-").encode(), value.encode("latin-1"))
            for name, value in headers.items()
        ]
        return await self.ask("POST", "/v2/models/digits/infer", body or body_of(1), pairs)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> ClientResponse:
        return await self.client.request(
            method.encode(), "127.0.0.1", self.router.server.port, path.encode(),
            headers=headers, body=body, timeout_seconds=20.0,
        )  # fmt: skip

    async def status(self, path: str) -> ClientResponse:
        return await self.client.request(
            b"GET", "127.0.0.1", self.router.status.port, path.encode(), timeout_seconds=10
        )

    async def state(self) -> RouterState:
        return RouterState.model_validate_json((await self.status("/state")).body)

    async def metrics(self) -> dict[str, float]:
        """Name with its labels to value."""
        text = (await self.status("/metrics")).body.decode()
        lines = [line.rpartition(" ") for line in text.splitlines() if line[:1] != "#"]
        return {name: float(value) for name, _, value in lines}

    def set_config(self, config: Mapping[str, Any] | str) -> None:
        text = config if isinstance(config, str) else json.dumps(config)
        self.config_file.write_text(text, encoding="utf-8")
        self.router.poll_config()

    def set_pods(self, *sidecars: FakeSidecar) -> None:
        self.router.set_endpoints({sidecar.name: sidecar.endpoint() for sidecar in sidecars})

    async def told_by(self, *sidecars: FakeSidecar) -> None:
        """Until the router has read the telemetry of each."""
        await until(
            lambda: all(
                (pod := self.router.pods.get(sidecar.name)) is not None and pod.pool
                for sidecar in sidecars
            )
        )

    def is_at_rest(self) -> bool:
        """Nothing in flight, held or counted is left over."""
        now = asyncio.get_running_loop().time()
        demand = self.router.summary.state(now=now, stable=60, panic=6).demand
        return (
            not any(pod.open_requests or pod.in_flight_rows for pod in self.router.pods)
            and not any(view.in_flight_rows for view in self.router.pods.views(now=now))
            and self.router.forwarder.body_bytes == 0
            and demand.buffered_requests == demand.buffered_bytes == demand.buffered_rows == 0
        )


@asynccontextmanager
async def running_router(
    folder: Path, *sidecars: FakeSidecar, seed: int = 1, **config: Any
) -> AsyncIterator[RouterUnderTest]:
    path = folder / "router.json"
    path.write_text(json.dumps(router_config(**config)), encoding="utf-8")
    settings = RouterSettings(
        pod_name="router-0", config=path, host="127.0.0.1", port=0, status_port=0,
        drain_wait_seconds=0, drain_seconds=5,
        endpoints=",".join(f"{one.name}=127.0.0.1:{one.port}" for one in sidecars),
    )  # fmt: skip
    router = Router(settings, Random(seed), candidates=fake_candidates(folder))
    await router.start()
    under_test = RouterUnderTest(router, path)
    try:
        await under_test.told_by(*(one for one in sidecars if one.telemetry is not None))
        yield under_test
    finally:
        for sidecar in sidecars:
            sidecar.open.set()
        await under_test.client.close()
        await router.stop()
