"""Learned state: owned, bounded, written when something that matters has changed."""

import json
from typing import Any

import pytest

from slimscale.act.child_names import memo_name
from slimscale.act.memo_store import DECIDE_KEY, PLAN_KEY, MemoStore, memo_path, same_memo, save
from slimscale.exceptions import SlimError, Unavailable
from slimscale.observe.memo_reader import memo_from_config_map
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from tests.support.fake_kube import FakeKube
from tests.support.observations import SyntheticWorkload, drive, make_spec

PATH = memo_path(namespace="team", name="sim")


def _parts(threads: int = 4, rate: float = 100.0, seen: float = 1000.0) -> dict[str, Any]:
    decide = {
        "version": 1,
        "target": {"threads": threads},
        "changed_at_seconds": 900.0,
        "pending": {"tasks_per_second": rate},
        "trends": {"cpu": {"count": int(seen)}},
        "trend_seen_until_seconds": seen,
    }
    return {DECIDE_KEY: decide, PLAN_KEY: {"version": 1, "pods": {}}}


async def _save(store: MemoStore, parts: dict[str, Any], uid: str = "uid-cr") -> bool:
    return await store.save(namespace="team", name="sim", uid=uid, parts=parts)


async def test_what_was_saved_is_what_a_restarted_operator_reads() -> None:
    kube = FakeKube()
    await _save(MemoStore(kube), _parts())
    found = kube.peek(PATH)
    for key, part in _parts().items():
        assert memo_from_config_map(found, key=key, owner_uid="uid-cr") == part


async def test_the_config_map_belongs_to_the_simworkload_in_its_own_namespace() -> None:
    kube = FakeKube()
    await _save(MemoStore(kube), _parts())
    found = kube.peek(PATH)
    assert found is not None
    assert found["metadata"]["namespace"] == "team"
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("SimWorkload", "sim", "uid-cr")
    assert "namespace" not in owner
    assert "finalizers" not in found["metadata"]


async def test_running_figures_alone_are_not_written() -> None:
    kube = FakeKube()
    store = MemoStore(kube)
    assert await _save(store, _parts())
    for index in range(100):
        assert not await _save(store, _parts(rate=100.0 + index % 5, seen=1000.0 + index))
    assert len(kube.writes) == 1


async def test_a_new_target_is_written_at_once() -> None:
    kube = FakeKube()
    store = MemoStore(kube)
    await _save(store, _parts())
    assert await _save(store, _parts(threads=5))
    assert await _save(store, _parts(threads=5, rate=200.0))


async def test_an_object_that_was_made_anew_gets_a_memo_of_its_own() -> None:
    kube = FakeKube()
    store = MemoStore(kube)
    await _save(store, _parts())
    assert await _save(store, _parts(), uid="uid-new")


async def test_a_restart_does_not_write_what_it_has_just_read() -> None:
    kube = FakeKube()
    store = MemoStore(kube)
    store.loaded(namespace="team", name="sim", uid="uid-cr", parts=_parts())
    assert not await _save(store, _parts())


async def test_a_failed_write_is_tried_again() -> None:
    kube = FakeKube()
    store = MemoStore(kube)
    kube.before = lambda call: Unavailable("timeout")
    with pytest.raises(Unavailable):
        await _save(store, _parts())
    kube.before = None
    assert await _save(store, _parts())


async def test_a_memo_that_has_grown_without_bound_is_refused_before_the_server_does() -> None:
    kube = FakeKube()
    with pytest.raises(SlimError, match="more than"):
        await save(kube, namespace="team", name="sim", uid="u", memo={"a": {"x": "y" * 300_000}})
    assert kube.calls == []


async def test_figures_that_are_not_finite_are_never_saved() -> None:
    with pytest.raises(ValueError, match="JSON"):
        await save(FakeKube(), namespace="t", name="s", uid="u", memo={"a": {"x": float("nan")}})


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ({"a_at_seconds": 1000.0}, {"a_at_seconds": 1001.0}, False),
        ({"pending_since_seconds": 1000.0}, {"pending_since_seconds": 1001.0}, False),
        ({"rate": 100.0}, {"rate": 110.0}, True),
        ({"rate": 100.0}, {"rate": 150.0}, False),
        ({"threads": 100}, {"threads": 101}, False),
        ({"a": 1}, {}, False),
        ({"points": [1]}, {"points": [2]}, True),
    ],
)
def test_times_and_counts_count_exactly_figures_roughly(
    old: dict[str, Any], new: dict[str, Any], *, same: bool
) -> None:
    assert same_memo(old, new) is same
    assert same_memo(new, old) is same


def test_the_name_of_the_config_map_is_stable() -> None:
    assert memo_name("sim") == memo_name("sim")
    assert json.loads(json.dumps(memo_name("sim"))).startswith("slimscale-sim-memo-")


def test_what_the_tuner_s_filters_gather_is_no_reason_to_write() -> None:
    """Two looks at a settled, noisy load differ in running figures alone."""
    plant = SyntheticWorkload(NetworkParameters(0.0, 5e-3, 60e-6, 2.0), threads=2, noise=0.05)
    spec = make_spec(cpu={"limitPolicy": "Keep"}, tuning={"cpuAware": False, "search": False})
    memo = drive(plant, spec, 24, decide=decide)
    for _ in range(12):
        later = drive(plant, spec, 1, memo=memo, decide=decide)
        assert same_memo(memo, later)
        assert memo != later
        memo = later
