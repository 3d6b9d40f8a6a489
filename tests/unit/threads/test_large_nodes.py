"""Many cores leave room for large steps: past a crowded dispatcher's peak, and back, only once."""

from itertools import groupby

import pytest

from slimscale.domain.decision import Decision, PodTarget
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from slimscale.threads.memo import Memo, Pending, Regime
from slimscale.threads.verify import revert
from tests.support.decide_cases import BLOCKING, HEAVY
from tests.support.observations import SyntheticWorkload, drive, make_spec


@pytest.mark.parametrize("truth", [HEAVY, BLOCKING], ids=["heavy", "blocking"])
@pytest.mark.parametrize("policy", ["Keep", "EqualThreads"])
def test_a_step_past_the_peak_of_the_dispatcher_is_neither_kept_nor_repeated(
    truth: NetworkParameters, policy: str
) -> None:
    plant = SyntheticWorkload(truth, threads=8, noise=0.03, limit_millicores=64000, node_cores=64.0)
    seen: list[Decision] = []
    drive(plant, make_spec(cpu={"limitPolicy": policy}), 50, decide=decide, each=seen.append)
    counts = [count for count, _ in groupby(d.target.threads for d in seen if d.target)]
    best = max(plant.rate(k, 64000) for k in range(1, 65))
    assert plant.rate(plant.threads, plant.limit_millicores) > 0.8 * best, counts
    worst = min(plant.rate(k, 64000) for k in counts[1:])
    assert worst > 0.8 * plant.rate(8, 64000), f"{counts}: less was done than before"
    assert len(counts) <= 5, f"{counts}: to and fro"


def test_a_raise_that_is_taken_back_leaves_no_floor_above_it() -> None:
    before, after = PodTarget(42, 1000, 2000), PodTarget(63, 2000, 4000)
    memo = Memo(
        target=after,
        previous=before,
        pending=Pending(before, after, 1000.0, 2000.0, 3000.0, 3.0),
        regime=Regime(lowered=True, floor_threads=63, floor_cpu_millicores=4000),
    )
    regime = revert(memo, now_seconds=1100.0).regime
    assert regime.floor_threads == 42
    assert regime.floor_cpu_millicores == 2000
