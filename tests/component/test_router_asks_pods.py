"""Pods that serve nobody are asked how they are; those that answer requests say it by themselves."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from slimscale.serving.router.state import RouterState
from tests.support.fake_sidecar import body_of, fake_sidecar
from tests.support.routers import running_router, until
from tests.support.routing_cases import telemetry

pytestmark = pytest.mark.component


async def test_an_idle_pod_is_asked_again_and_again_and_what_it_says_later_counts(
    tmp_path: Path,
) -> None:
    async with (
        fake_sidecar("a") as pod,
        running_router(tmp_path, pod, telemetryPollSeconds=0.05) as router,
    ):
        pod.telemetry = telemetry(draining=True)
        asked = pod.polls
        await until(lambda: pod.polls >= asked + 2)  # the first of them has been read by now
        assert (await router.state()).pools[0].draining == 1
        assert not pod.bodies


async def test_a_new_pod_is_asked_at_once_and_not_again_before_its_time(tmp_path: Path) -> None:
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path, first) as router,
    ):  # fmt: skip
        router.set_pods(first, second)
        await router.told_by(first, second)
        for number in range(10):
            await router.infer(body_of(number))
        assert (first.polls, second.polls) == (1, 1)


async def test_requests_go_by_what_an_idle_pod_has_said(tmp_path: Path) -> None:
    async with fake_sidecar("a") as full, fake_sidecar("b") as idle:
        full.telemetry = telemetry(backlog=5.0)
        async with running_router(tmp_path, full, idle) as router:
            for number in range(10):
                await router.infer(body_of(number))
            assert not full.bodies
            assert len(idle.bodies) == 10


async def test_a_draining_pod_gets_nothing_before_the_endpoints_say_so(tmp_path: Path) -> None:
    async with fake_sidecar("a") as leaves, fake_sidecar("b") as stays:
        leaves.telemetry = telemetry(draining=True)
        async with running_router(tmp_path, leaves, stays) as router:
            for number in range(10):
                assert (await router.infer(body_of(number))).status == 200
            assert not leaves.bodies
            pools = (await router.state()).pools
            assert (pools[0].pods, pools[0].draining) == (2, 1)


async def test_a_pod_that_cannot_be_asked_is_ejected_without_costing_a_request(
    tmp_path: Path,
) -> None:
    async with fake_sidecar("a") as dead, fake_sidecar("b") as lives:
        await dead.kill()
        dead.telemetry = None  # nothing to wait for
        async with running_router(
            tmp_path, dead, lives, telemetryPollSeconds=0.05, ejectAfterFailures=3
        ) as router:
            await until(lambda: router.router.pods.ejection.ejected() == 1)
            metrics = await router.metrics()
    assert metrics["slimscale_router_ejected_pods"] == 1
    assert "slimscale_router_retries_total" not in "".join(metrics)


async def test_a_pod_that_is_not_ready_is_asked_too_and_its_silence_costs_it_nothing(
    tmp_path: Path,
) -> None:
    """One that has lost its GPU says so there; one that starts has no port yet."""
    async with (
        fake_sidecar("a") as lost, fake_sidecar("b") as starts, fake_sidecar("c") as serves,
    ):  # fmt: skip
        lost.telemetry = replace(telemetry(), device_lost=True)
        async with running_router(
            tmp_path, telemetryPollSeconds=0.05, ejectAfterFailures=1
        ) as router:
            await starts.kill()
            unready = {one.name: replace(one.endpoint(), ready=False) for one in (lost, starts)}
            router.router.set_endpoints(unready | {"c": serves.endpoint()})
            await until(lambda: lost.polls >= 3 and serves.polls >= 3)
            state = await router.state()
            [told, silent, _] = state.pods
            assert told.telemetry is not None
            assert told.telemetry.device_lost
            assert (silent.telemetry, silent.ejected) == (None, False)


async def test_a_pod_that_becomes_ready_is_asked_at_once_whatever_it_said_before(
    tmp_path: Path,
) -> None:
    """Before, its models were cold."""
    async with fake_sidecar("a") as pod, running_router(tmp_path) as router:
        router.router.set_endpoints({"a": replace(pod.endpoint(), ready=False)})
        await until(lambda: pod.polls == 1)
        await router.told_by(pod)
        pod.telemetry = telemetry(backlog=5.0)
        router.set_pods(pod)

        def backlog() -> float | None:
            [view] = router.router.pods.views(now=asyncio.get_running_loop().time())
            return view.telemetry.backlog_seconds if view.telemetry is not None else None

        await until(lambda: backlog() == 5.0)
        assert pod.polls == 2


async def test_the_state_tells_the_percentile_that_was_asked_for(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        assert (await router.state()).demand.latency_seconds is None
        for number in range(5):
            await router.infer(body_of(number))
        asked = await router.status("/state?percentile=99.9")
        demand = RouterState.model_validate_json(asked.body).demand
        assert demand.latency_percentile == 99.9
        assert 0.0 < (demand.latency_seconds or 0.0) < 60.0
        for wrong in ("49", "100", "x", "nan"):
            refused = await router.status(f"/state?percentile={wrong}")
            assert refused.status == 400
            assert b"percentile: send percent from 50" in refused.body or wrong == "x"
