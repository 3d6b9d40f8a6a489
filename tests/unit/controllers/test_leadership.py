"""Exactly one writer: pitfalls A11 and A12, in virtual time."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from slimscale.controllers.leadership import Leadership, LeaseTimes
from slimscale.exceptions import Unavailable
from tests.support.fake_kube import Call, FakeKube
from tests.support.virtual_time import LoopClock, run_virtual

LEASE = "/apis/coordination.k8s.io/v1/namespaces/slimscale/leases/slimscale-operator"


class Process:
    """An operator process, as far as its lease goes."""

    def __init__(self, kube: FakeKube, name: str, times: LeaseTimes | None = None) -> None:
        self.clock = LoopClock()
        self.exits: list[str] = []
        self.leadership = Leadership(
            kube,
            self.clock,
            namespace="slimscale",
            identity=name,
            on_lost=self.exits.append,
            rng=Random(name),
            times=times or LeaseTimes(),
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.leadership.run())

    async def kill(self) -> None:
        assert self.task is not None
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


def test_of_two_processes_one_holds_the_lease_and_the_other_follows_when_it_dies() -> None:
    async def main() -> None:
        kube = FakeKube()
        first, second = Process(kube, "first"), Process(kube, "second")
        first.start()
        await asyncio.sleep(1)
        second.start()
        held_at_once = 0
        for _ in range(100):
            await asyncio.sleep(1)
            held_at_once = max(held_at_once, first.leadership.held() + second.leadership.held())
        assert held_at_once == 1
        assert first.leadership.held()
        await first.kill()
        died = asyncio.get_running_loop().time()
        await second.leadership.acquired()
        waited = asyncio.get_running_loop().time() - died
        assert waited < 20 + 8
        assert not first.leadership.held()
        await second.kill()

    run_virtual(main())


def test_an_orderly_end_lets_the_next_one_start_without_waiting() -> None:
    async def main() -> None:
        kube = FakeKube()
        first, second = Process(kube, "first"), Process(kube, "second")
        first.start()
        await first.leadership.acquired()
        second.start()
        await first.kill()
        await first.leadership.release()
        ended = asyncio.get_running_loop().time()
        await second.leadership.acquired()
        assert asyncio.get_running_loop().time() - ended < 5
        await second.kill()

    run_virtual(main())


def test_a_process_that_was_frozen_past_its_lease_writes_nothing_and_ends() -> None:
    async def main() -> None:
        kube = FakeKube()
        process = Process(kube, "frozen")
        await process.leadership.step()
        assert process.leadership.held()
        process.clock.frozen_seconds += 13
        assert not process.leadership.held(), "before anything else ran"
        writes = len(kube.writes)
        await process.leadership.step()
        assert process.exits
        assert len(kube.writes) == writes, "a late renewal would take the lease back"

    run_virtual(main())


@pytest.mark.parametrize("step_seconds", [3600.0, -3600.0])
def test_a_step_of_the_wall_clock_neither_loses_nor_doubles_the_lease(step_seconds: float) -> None:
    async def main() -> None:
        kube = FakeKube()
        holder, other = Process(kube, "holder"), Process(kube, "other")
        holder.start()
        await holder.leadership.acquired()
        other.start()
        holder.clock.wall_step_seconds = step_seconds
        other.clock.wall_step_seconds = -step_seconds
        for _ in range(60):
            await asyncio.sleep(1)
            assert holder.leadership.held()
            assert not other.leadership.held()
        await holder.kill()
        await other.kill()

    run_virtual(main())


def test_an_outage_of_the_api_server_ends_the_holder_before_another_may_start() -> None:
    async def main() -> None:
        kube = FakeKube()
        holder = Process(kube, "holder")
        holder.start()
        await holder.leadership.acquired()
        kube.before = lambda _call: Unavailable("no answer")
        lost_by = LeaseTimes().renew_deadline_seconds
        await asyncio.sleep(lost_by + 0.1)
        assert not holder.leadership.held()
        await asyncio.sleep(LeaseTimes().retry_seconds * 1.1)
        assert holder.exits
        await holder.kill()

    run_virtual(main())


def test_a_candidate_waits_for_the_duration_in_the_lease_not_for_its_own() -> None:
    async def main() -> None:
        kube = FakeKube()
        slow = Process(kube, "slow", LeaseTimes(duration_seconds=300, renew_deadline_seconds=200))
        await slow.leadership.step()
        hasty = Process(kube, "hasty")
        hasty.start()
        await asyncio.sleep(250)
        assert not hasty.leadership.held()
        await asyncio.sleep(60)
        assert hasty.leadership.held()
        await hasty.kill()

    run_virtual(main())


def test_a_renewal_that_someone_else_s_write_beats_counts_as_no_renewal() -> None:
    async def main() -> None:
        kube = FakeKube()
        process = Process(kube, "holder")
        await process.leadership.step()

        def touch_first(call: Call) -> None:
            if call.verb == "update":
                kube.edit(LEASE, lambda lease: lease["metadata"].update(labels={"touched": "yes"}))

        kube.before = touch_first
        await asyncio.sleep(11)
        await process.leadership.step()
        await asyncio.sleep(2)
        assert not process.leadership.held()

    run_virtual(main())


def test_the_holder_ends_when_its_lease_was_taken() -> None:
    async def main() -> None:
        kube = FakeKube()
        process = Process(kube, "holder")
        await process.leadership.step()
        kube.edit(LEASE, lambda lease: lease["spec"].update(holderIdentity="usurper"))
        await process.leadership.step()
        assert process.exits
        assert not process.leadership.held()

    run_virtual(main())


def test_the_times_leave_room_for_a_write_that_is_under_way() -> None:
    with pytest.raises(ValueError, match="must be below duration"):
        LeaseTimes(duration_seconds=15, renew_deadline_seconds=12, call_timeout_seconds=5)


def test_only_leases_are_touched() -> None:
    async def main() -> set[tuple[str, str]]:
        kube = FakeKube()
        process = Process(kube, "one")
        await process.leadership.step()
        await process.leadership.step()
        return kube.used

    assert run_virtual(main()) == {("get", "leases"), ("create", "leases"), ("update", "leases")}
