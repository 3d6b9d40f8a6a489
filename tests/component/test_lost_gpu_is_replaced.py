"""A GPU that falls off the bus, from the driver to the decision to replace its pod (F4).

The library is the stub; model server, sidecar and router are real, and so is what reads them.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slimscale.domain.scaling import PoolPod
from slimscale.kubeapi.ports import Json
from slimscale.observe.inference import newest_telemetry
from slimscale.observe.inference_pods import observe_pool
from slimscale.observe.router_reports import read_report
from slimscale.serving.router.endpoints import Endpoint
from slimscale.serving.sidecar.process import Sidecar
from slimscale.serving.sidecar.settings import SidecarSettings
from tests.support.model_server_process import started
from tests.support.nvml_stub import GPU, GPU_IS_LOST, build, environment, settings
from tests.support.routers import RouterUnderTest, running_router
from tests.support.scaling_cases import ask, make_demand
from tests.support.sidecars import config_document, until

pytestmark = [pytest.mark.component, pytest.mark.slow]


def deployment() -> Json:
    return {"metadata": {}, "spec": {"replicas": 1}, "status": {"replicas": 1}}


def pod(*, ready: bool) -> Json:
    condition = {"type": "Ready", "status": str(ready)}
    return {
        "metadata": {"name": "p1", "creationTimestamp": "1970-01-01T00:00:00Z"},
        "status": {"conditions": [condition]},
    }


async def seen(router: RouterUnderTest, *, ready: bool) -> PoolPod:
    """The pod as the operator makes it out of the router's state."""
    report = read_report((await router.status("/state")).body, "r1")
    telemetry = newest_telemetry([report])
    pool = observe_pool(
        "cpu", deployment(), [pod(ready=ready)], telemetry=telemetry, min_replicas=1
    )
    [found] = pool.pods
    return found


async def until_seen(
    router: RouterUnderTest, holds: Callable[[PoolPod], bool], *, ready: bool
) -> PoolPod:
    while not holds(found := await seen(router, ready=ready)):  # noqa: ASYNC110 - asked over HTTP
        await asyncio.sleep(0.01)
    return found


async def test_the_pod_of_a_lost_gpu_is_not_ready_and_gets_replaced(tmp_path: Path) -> None:
    stub = tmp_path / "stub.txt"
    stub.write_text(settings(GPU))
    env = environment(build(tmp_path / "nvml"), stub) | {"NVIDIA_VISIBLE_DEVICES": "GPU-a"}
    config = tmp_path / "sidecar.json"
    config.write_text(json.dumps(config_document()))
    with started(tmp_path, env) as model_server:
        sidecar = Sidecar(
            SidecarSettings(
                config=config, host="127.0.0.1", port=0, status_port=0, pod_name="p1", pool="cpu",
                modelserver_port=model_server.port,
            )
        )  # fmt: skip
        await sidecar.start()
        try:
            await until(lambda: sidecar.ready() is None)
            async with running_router(tmp_path, telemetryPollSeconds=0.05) as router:

                def in_service(*, ready: bool) -> None:
                    """What the EndpointSlice says once the kubelet has asked `/readyz`."""
                    there = Endpoint("p1", "127.0.0.1", sidecar.server.port, ready=ready)
                    router.router.set_endpoints({"p1": there})

                in_service(ready=True)
                well = await until_seen(
                    router, lambda p: p.telemetry is not None and p.telemetry.device == "GPU-a",
                    ready=True,
                )  # fmt: skip
                assert not well.device_lost

                stub.write_text(settings({**GPU, "gpu0.error": GPU_IS_LOST}))
                await until(lambda: sidecar.ready() == "the device GPU-a is lost")
                in_service(ready=False)
                await until_seen(router, lambda p: p.device_lost, ready=False)
                lost = observe_pool(
                    "cpu", deployment(), [pod(ready=False)],
                    telemetry=newest_telemetry(
                        [read_report((await router.status("/state")).body, "r1")]
                    ),
                    min_replicas=1,
                )  # fmt: skip
                assert ask(make_demand(1.0), lost).replace_pods == ("p1",)

                stub.write_text(settings(GPU))
                await until(lambda: sidecar.ready() is None)
                await until_seen(router, lambda p: not p.device_lost, ready=False)
        finally:
            await sidecar.close()
