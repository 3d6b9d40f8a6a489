"""SlimInferences without the lease, in an outage, at deletion; and what wakes their controller."""

import asyncio
from collections.abc import Callable

import pytest

from slimscale.exceptions import Unavailable
from tests.support.fake_kube import Call
from tests.support.inference_world import FASHION, KEY, POOL, World

pytestmark = pytest.mark.component


async def test_without_the_lease_nothing_is_written() -> None:
    """A12: the lease is asked before the plan and before each write."""
    world = World(lease=False)
    world.create()
    await world.reconcile()
    assert world.kube.writes == []
    world.lease = True

    def lose(call: Call) -> Exception | None:
        if call.verb == "patch":
            world.lease = False
        return None

    world.kube.before = lose
    await world.reconcile()
    assert len(world.kube.writes) == 1


async def test_an_outage_in_the_middle_is_made_good_by_the_next_look() -> None:
    world = World()
    world.create()
    calls = iter(range(1000))

    def fail_some(call: Call) -> Exception | None:
        return Unavailable("503") if call.verb == "patch" and next(calls) in (2, 3, 5) else None

    world.kube.before = fail_some
    assert await world.reconcile() == 5.0
    assert world.condition("Applied")[:2] == ("False", "ChildNotWritten")
    await world.reconcile()
    assert world.condition("Applied")[:2] == ("True", "ChildrenApplied")


async def test_deletion_leaves_no_finalizer_and_no_work() -> None:
    world = World()
    world.create()
    await world.reconcile()
    assert "finalizers" not in (world.kube.peek(FASHION) or {})["metadata"]
    world.kube.remove(FASHION)
    assert await world.reconcile() is None
    sample = world.registry.get_sample_value(
        "slimscale_sliminference_ready", {"namespace": "ns", "name": "fashion"}
    )
    assert sample is None


async def test_children_and_pods_wake_their_owner() -> None:
    world = World()
    world.create()
    await world.reconcile()
    assert world.part is not None
    woken: list[tuple[str, str]] = []
    world.part.watches._wake = woken.append
    task = asyncio.create_task(world.part.watches.run())
    try:
        await _until(lambda: KEY in woken)
        await _until(lambda: len({c.path for c in world.kube.calls if c.verb == "watch"}) >= 4)
        woken.clear()
        world.pod("fashion-1")
        await _until(lambda: KEY in woken)
        woken.clear()
        world.kube.edit(POOL, lambda d: d["spec"].update(replicas=3))
        await _until(lambda: KEY in woken)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not done():  # noqa: ASYNC110 - the condition is on the fake's own records
            await asyncio.sleep(0)
