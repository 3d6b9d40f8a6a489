"""A service that has no pod: its first request is noticed within two seconds, by its routers alone."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from slimscale.api.names import LABEL_ROLE
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.controllers.queue import Key
from slimscale.controllers.router_pulse import PULSE_SECONDS, RouterPulse
from slimscale.domain.decision import Action
from slimscale.domain.inference import InferenceObservation, RouterReport
from slimscale.domain.scaling import PoolDecision, ScalingDecision, ScalingObservation
from slimscale.kubeapi.ports import Json
from tests.support.inferences import inference_spec
from tests.support.virtual_time import run_virtual

KEY: Key = ("ns", "fashion")
SPEC = SlimInferenceSpec.model_validate(inference_spec())
QUIET = RouterReport("r", panic_rows_per_second=0.0)


@dataclass
class Routers:
    reports: tuple[RouterReport, ...] = (QUIET,)
    asked: list[str] = field(default_factory=list)

    async def fetch(
        self, routers: Iterable[Json], spec: SlimInferenceSpec
    ) -> tuple[RouterReport, ...]:
        self.asked += [str(pod["metadata"]["name"]) for pod in routers]
        return self.reports


@dataclass
class World:
    routers: Routers = field(default_factory=Routers)
    woken: list[Key] = field(default_factory=list)
    lease: bool = True

    def __post_init__(self) -> None:
        self.pulse = RouterPulse(
            self.routers, wake=self.woken.append, lease_held=lambda: self.lease
        )

    def looked(self, *, replicas: int) -> None:
        pool = PoolDecision("cpu", replicas, replicas, replicas, replicas, None)
        decision = ScalingDecision(
            0.0, Action.NO_CHANGE, (pool,), None, 0.0, panicking=False, metrics_available=True,
            message="",
        )  # fmt: skip
        observation = InferenceObservation(
            "ns", "fashion", "u", 1, 0.0, children={}, pods=(pod("r-1"), pod("p-1", role="pool")),
            scaling=ScalingObservation(0.0, None, ()),
        )  # fmt: skip
        self.pulse.follow(KEY, observation, decision, SPEC)


def pod(name: str, *, role: str = "router") -> dict[str, Any]:
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": name, "labels": {LABEL_ROLE: role}},
        "status": {"podIP": "10.0.0.1", "conditions": ready},
    }


async def test_a_request_that_waits_wakes_its_service_once() -> None:
    world = World()
    world.looked(replicas=0)
    await world.pulse.beat()
    assert world.woken == []
    world.routers.reports = (QUIET, replace(QUIET, buffered_rows=1))
    await world.pulse.beat()
    await world.pulse.beat()
    assert world.woken == [KEY]
    assert world.routers.asked == ["r-1", "r-1"], "pods of pools are no routers"
    world.looked(replicas=0)  # it could not be helped: asked again
    await world.pulse.beat()
    assert world.woken == [KEY, KEY]


async def test_a_request_that_was_refused_wakes_its_service_too() -> None:
    world = World(Routers((replace(QUIET, panic_rows_per_second=0.2),)))
    world.looked(replicas=0)
    await world.pulse.beat()
    assert world.woken == [KEY]


async def test_a_service_with_pods_or_one_that_is_gone_is_not_asked() -> None:
    world = World(Routers((replace(QUIET, buffered_rows=1),)))
    world.looked(replicas=1)
    await world.pulse.beat()
    world.looked(replicas=0)
    world.looked(replicas=2)
    await world.pulse.beat()
    world.looked(replicas=0)
    world.pulse.forget(KEY)
    await world.pulse.beat()
    assert (world.routers.asked, world.woken) == ([], [])


async def test_who_does_not_hold_the_lease_asks_nobody() -> None:
    world = World(lease=False)
    world.looked(replicas=0)
    await world.pulse.beat()
    assert world.routers.asked == []


async def test_a_silent_router_is_no_reason() -> None:
    world = World(Routers(()))
    world.looked(replicas=0)
    await world.pulse.beat()
    assert world.woken == []


def test_it_is_asked_every_two_seconds() -> None:
    async def main() -> int:
        world = World()
        world.looked(replicas=0)
        task = asyncio.create_task(world.pulse.run())
        await asyncio.sleep(10.5 * PULSE_SECONDS)
        task.cancel()
        return len(world.routers.asked)

    assert run_virtual(main()) == 10
    assert PULSE_SECONDS == 2.0
