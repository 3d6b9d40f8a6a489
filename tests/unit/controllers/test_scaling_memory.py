"""What scaling remembers outlives the process, and is not written with every look."""

from dataclasses import dataclass

from slimscale.act.memo_store import save
from slimscale.controllers.scaling_memo import ScalingMemoKeeper
from slimscale.exceptions import Unavailable
from slimscale.kubeapi.paths import collection
from tests.support.fake_kube import FakeKube
from tests.support.inferences import sliminference

RAW = sliminference()


@dataclass
class Clock:
    seconds: float = 1000.0

    def now_seconds(self) -> float:
        return self.seconds

    def monotonic_seconds(self) -> float:
        return self.seconds


async def test_the_next_process_goes_on_where_the_last_one_was() -> None:
    kube, clock = FakeKube(), Clock()
    first = ScalingMemoKeeper(kube, clock)
    assert await first.load(RAW) == {}
    await first.save(RAW, {"up_at": 5.0}, urgent=True)
    assert await ScalingMemoKeeper(kube, clock).load(RAW) == {"up_at": 5.0}


async def test_windows_that_move_are_written_once_a_minute() -> None:
    kube, clock = FakeKube(), Clock()
    keeper = ScalingMemoKeeper(kube, clock)
    await keeper.load(RAW)
    for step in range(20):
        clock.seconds += 5
        await keeper.save(RAW, {"window": step}, urgent=False)
    assert len(kube.writes) == 1
    await keeper.flush()
    assert await ScalingMemoKeeper(kube, clock).load(RAW) == {"window": 19}


async def test_an_object_made_anew_under_its_name_starts_from_nothing() -> None:
    kube, clock = FakeKube(), Clock()
    keeper = ScalingMemoKeeper(kube, clock)
    await keeper.save(RAW, {"up_at": 5.0}, urgent=True)
    again = sliminference()
    again["metadata"]["uid"] = "another"
    assert await keeper.load(again) == {}
    assert await ScalingMemoKeeper(kube, clock).load(again) == {}


async def test_a_write_that_fails_is_tried_again_and_stops_nothing() -> None:
    kube, clock = FakeKube(), Clock()
    keeper = ScalingMemoKeeper(kube, clock)
    kube.before = lambda call: Unavailable("503") if call.verb == "patch" else None
    await keeper.save(RAW, {"up_at": 5.0}, urgent=True)
    kube.before = None
    await keeper.flush()
    assert await ScalingMemoKeeper(kube, clock).load(RAW) == {"up_at": 5.0}


async def test_it_is_not_the_memory_of_a_simworkload_of_the_same_name() -> None:
    kube = FakeKube()
    await save(kube, namespace="ns", name="fashion", uid="workload", memo={"a.json": {}})
    await ScalingMemoKeeper(kube, Clock()).save(RAW, {"up_at": 5.0}, urgent=True)
    listed = await kube.list(collection("v1", "configmaps", "ns"))
    assert len(listed.items) == 2
