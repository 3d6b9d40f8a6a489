"""Our own watches lose nothing, never spin, and say when they are deaf (A1, A2). In virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from slimscale.controllers.heartbeat import HealthLimits, Heartbeat
from slimscale.controllers.pod_watch import PodWatches, fingerprint
from slimscale.controllers.queue import Key
from slimscale.controllers.resync import Resync, WatchAudit
from slimscale.controllers.watch_loop import WatchRequest, follow
from slimscale.exceptions import NotPermitted, Unavailable
from slimscale.kubeapi.paths import collection
from slimscale.kubeapi.ports import Json, WatchExpired
from tests.support.fake_kube import FakeKube
from tests.support.raw_objects import pod, simworkload
from tests.support.virtual_time import LoopClock, run_virtual

PODS = collection("v1", "pods", "ns")
KEY: Key = ("ns", "ants")


@dataclass
class Seen:
    lists: list[set[str]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)

    def request(self) -> WatchRequest:
        return WatchRequest(
            name="pods",
            path=PODS,
            on_list=lambda items: self.lists.append({i["metadata"]["name"] for i in items}),
            on_event=lambda kind, thing: self.events.append((kind, thing["metadata"]["name"])),
        )


async def _during(work: Awaitable[None], story: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0.1)
    await story()
    await asyncio.sleep(0.1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def test_changes_are_heard_one_by_one_after_one_list() -> None:
    async def main() -> Seen:
        kube, seen = FakeKube(), Seen()
        kube.add(PODS, pod("a"))

        async def story() -> None:
            kube.add(PODS, pod("b"))
            kube.edit(f"{PODS}/a", lambda p: p["status"].update(phase="Failed"))
            kube.remove(f"{PODS}/a")

        beat = Heartbeat(LoopClock())
        await _during(follow(kube, seen.request(), heartbeat=beat, rng=Random(1)), story)
        return seen

    seen = run_virtual(main())
    assert seen.lists == [{"a"}]
    assert seen.events == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_deletion_that_was_missed_shows_in_the_list_after_an_expiry() -> None:
    async def main() -> Seen:
        kube, seen = FakeKube(), Seen()
        kube.add(PODS, pod("a"))
        kube.add(PODS, pod("b"))

        async def story() -> None:
            kube.remove(f"{PODS}/a")
            kube.expire()
            await asyncio.sleep(5)

        beat = Heartbeat(LoopClock())
        await _during(follow(kube, seen.request(), heartbeat=beat, rng=Random(1)), story)
        return seen

    seen = run_virtual(main())
    assert seen.lists[0] == {"a", "b"}
    assert seen.lists[-1] == {"b"}


@dataclass
class Broken(FakeKube):
    """Every watch ends at once, in the way that was chosen."""

    error: Exception | None = None

    async def watch(self, path: str, **_: Any) -> AsyncIterator[Json]:
        self._record("watch", path)
        if self.error is not None:
            raise self.error
        nothing: list[Json] = []
        for event in nothing:
            yield event


@pytest.mark.parametrize(
    "error", [None, WatchExpired("old"), Unavailable("cut"), NotPermitted("403")]
)
def test_a_server_that_ends_each_watch_at_once_is_not_hammered(error: Exception | None) -> None:
    async def main() -> tuple[int, dict[str, float]]:
        kube, beat = Broken(error=error), Heartbeat(LoopClock())
        request = WatchRequest(name="pods", path=PODS)
        task = asyncio.create_task(follow(kube, request, heartbeat=beat, rng=Random(1)))
        await asyncio.sleep(600)
        ages = beat.ages_seconds()
        task.cancel()
        return len(kube.calls), ages

    calls, ages = run_virtual(main())
    assert 5 < calls < 80, "ten minutes"
    assert ages["pods"] <= 65, "it is being retried, so it is not deaf"


def test_a_watch_that_ended_is_no_longer_judged() -> None:
    async def main() -> dict[str, float]:
        beat = Heartbeat(LoopClock())

        async def story() -> None:
            pass

        await _during(follow(FakeKube(), Seen().request(), heartbeat=beat, rng=Random(1)), story)
        return beat.ages_seconds()

    assert run_virtual(main()) == {}


# Pods of a target


async def _pod_story(story: Callable[[FakeKube], object]) -> int:
    """How often a change of one pod wakes its SimWorkload."""
    kube, woken = FakeKube(), 0
    kube.add(PODS, pod("a"))

    def wake(key: Key) -> None:
        nonlocal woken
        assert key == KEY
        woken += 1

    watches = PodWatches(kube, wake=wake, heartbeat=Heartbeat(LoopClock()), rng=Random(1))
    watches.ensure(KEY, "app=ants")
    await asyncio.sleep(1)
    before = woken
    story(kube)
    await asyncio.sleep(1)
    await watches.close()
    return woken - before


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p["metadata"]["annotations"].update({"slimscale.dev/threads": "4"}),
        lambda p: p["spec"]["containers"][0]["resources"]["limits"].update(cpu="3"),
        lambda p: p["status"]["containerStatuses"][0]["resources"]["limits"].update(cpu="3"),
        lambda p: p["status"]["containerStatuses"][0].update(restartCount=1),
        lambda p: p["status"].update(conditions=[{"type": "Ready", "status": "False"}]),
        lambda p: p["status"]["conditions"].append(
            {"type": "PodResizePending", "status": "True", "reason": "Deferred"}
        ),
        lambda p: p["metadata"].update(deletionTimestamp="2026-11-30T00:00:00Z"),
        lambda p: p["status"].update(phase="Failed"),
    ],
)
def test_what_a_decision_depends_on_wakes_it(change: Callable[[Json], Any]) -> None:
    assert run_virtual(_pod_story(lambda kube: kube.edit(f"{PODS}/a", change))) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p["status"].update(hostIP="10.0.0.9"),
        lambda p: p["metadata"]["annotations"].update({"example.com/seen": "now"}),
        lambda p: p["status"]["conditions"].append({"type": "ContainersReady", "status": "True"}),
        lambda p: p["status"]["conditions"][0].update(lastProbeTime="2026-11-30T00:00:00Z"),
        lambda p: p["metadata"]["labels"].update(extra="1"),
    ],
)
def test_noise_does_not(change: Callable[[Json], Any]) -> None:
    assert run_virtual(_pod_story(lambda kube: kube.edit(f"{PODS}/a", change))) == 0


def test_a_pod_that_comes_and_one_that_goes_wake_it_and_strangers_do_not() -> None:
    def story(kube: FakeKube) -> None:
        kube.add(PODS, pod("b"))
        kube.remove(f"{PODS}/a")
        kube.add(PODS, pod("c", owner="bees"))

    assert run_virtual(_pod_story(story)) == 2


def test_another_selector_replaces_the_watch() -> None:
    async def main() -> int:
        kube = FakeKube()
        woken: list[Key] = []
        watches = PodWatches(
            kube, wake=woken.append, heartbeat=Heartbeat(LoopClock()), rng=Random(1)
        )
        watches.ensure(KEY, "app=ants")
        await asyncio.sleep(1)
        watches.ensure(KEY, "app=bees")
        watches.ensure(KEY, "app=bees")
        await asyncio.sleep(1)
        kube.add(PODS, pod("a", owner="ants"))
        kube.add(PODS, pod("b", owner="bees"))
        await asyncio.sleep(1)
        await watches.close()
        return len(woken)

    assert run_virtual(main()) == 1


def test_a_pod_without_status_has_a_fingerprint() -> None:
    assert fingerprint({"metadata": {"uid": "u"}}) == fingerprint({"metadata": {"uid": "u"}})


# Health


def test_a_silent_watch_fails_liveness_and_an_outage_does_not() -> None:
    async def main() -> None:
        beat = Heartbeat(LoopClock(), HealthLimits(watch_silence_seconds=300))
        beat.started()
        beat.beat("pods")
        await asyncio.sleep(250)
        beat.loop_turned()
        assert beat.health().alive
        beat.outage("pods")
        await asyncio.sleep(250)
        beat.loop_turned()
        assert beat.health().alive, "a restart would not bring the API server back"
        await asyncio.sleep(60)
        beat.loop_turned()
        health = beat.health()
        assert not health.alive
        assert not health.ready
        assert "watch pods: silent for 310 s" in health.problems

    run_virtual(main())


def test_a_stalled_loop_fails_liveness() -> None:
    async def main() -> None:
        beat = Heartbeat(LoopClock())
        beat.loop_turned()
        await asyncio.sleep(61)
        assert not beat.health().alive

    run_virtual(main())


SIMWORKLOADS = collection("slimscale.dev/v1alpha1", "simworkloads", "ns")


def _resync(kube: FakeKube, beat: Heartbeat, audit: WatchAudit, woken: list[Key]) -> Resync:
    return Resync(
        kube, namespaces=("ns",), wake=woken.append, audit=audit, heartbeat=beat, rng=Random(1),
        interval_seconds=60,
    )  # fmt: skip


def test_a_deaf_watch_is_told_from_a_quiet_one() -> None:
    async def main() -> None:
        kube, clock = FakeKube(), LoopClock()
        beat = Heartbeat(clock, HealthLimits(watch_silence_seconds=300))
        audit = WatchAudit(beat)
        thing = kube.add(SIMWORKLOADS, simworkload())
        audit.heard(thing)
        resync = asyncio.create_task(_resync(kube, beat, audit, []).run())
        await asyncio.sleep(1000)
        beat.loop_turned()
        assert beat.health().alive, "nothing happened, so there was nothing to tell"
        kube.edit(f"{SIMWORKLOADS}/ants", lambda t: t["spec"].update(suspend=True))
        await asyncio.sleep(1000)
        beat.loop_turned()
        assert not beat.health().alive
        audit.heard(kube.peek(f"{SIMWORKLOADS}/ants") or {})
        await asyncio.sleep(61)
        beat.loop_turned()
        assert beat.health().alive
        resync.cancel()

    run_virtual(main())


def test_the_resync_wakes_what_is_there_and_what_is_gone() -> None:
    async def main() -> None:
        kube = FakeKube()
        woken: list[Key] = []
        kube.add(SIMWORKLOADS, simworkload())
        beat = Heartbeat(LoopClock())
        resync = _resync(kube, beat, WatchAudit(beat), woken)
        await resync.once()
        assert beat.health().ready
        kube.remove(f"{SIMWORKLOADS}/ants")
        await resync.once()
        await resync.once()
        assert woken == [KEY, KEY]

    run_virtual(main())


def test_a_list_that_is_refused_is_tried_again_and_is_no_deafness() -> None:
    async def main() -> None:
        kube = FakeKube(forbidden={("list", "simworkloads")})
        woken: list[Key] = []
        kube.add(SIMWORKLOADS, simworkload())
        beat = Heartbeat(LoopClock())
        task = asyncio.create_task(_resync(kube, beat, WatchAudit(beat), woken).run())
        await asyncio.sleep(900)
        beat.loop_turned()
        assert beat.health().alive
        assert not beat.health().ready
        kube.forbidden.clear()
        await asyncio.sleep(60)
        assert woken
        task.cancel()

    run_virtual(main())
