"""What a window says is filtered; what chance cannot explain is not learned from."""

import math
import random
from dataclasses import replace

from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from slimscale.threads.estimate import Estimate, estimate_parameters
from slimscale.threads.innovation import learn
from slimscale.threads.memo import Memo, Regime, load_memo
from slimscale.threads.window import WorkloadWindow
from tests.support.observations import SyntheticWorkload, drive, make_spec

WINDOW = WorkloadWindow(
    pods=1, threads=4, started_at_seconds=0.0, ended_at_seconds=15.0, tasks=3000.0,
    tasks_per_second=200.0, task_seconds=0.02, task_cpu_seconds=0.01, task_runqueue_seconds=0.01,
    dispatch_seconds=1e-4, dispatch_median_seconds=1e-4, dispatch_squared_variation=1.0,
    task_quantiles_seconds=(0.02, 0.03, 0.04), outstanding=8.0, saturated=True,
    cpu_quota_cores=2.0, cpu_used_cores=2.0, cpu_seconds_a_task=0.01,
    throttled_ratio=0.0, throttled_seconds_per_second=0.0,
)  # fmt: skip


def _seen(factor: float, regime: Regime, *, threads: int = 4) -> tuple[Estimate, Regime, bool]:
    window = replace(
        WINDOW,
        threads=threads,
        task_cpu_seconds=0.01 * factor,
        cpu_seconds_a_task=0.0101 * factor,
        tasks_per_second=200.0 / factor,
    )
    estimate = estimate_parameters(window, cores=2.0, node_cores=4.0, regime=regime, min_tasks=30)
    assert estimate is not None
    estimate, regime, refused = learn(estimate, window, regime)
    return estimate, regime, refused is not None


def test_the_mean_over_windows_is_closer_to_the_truth_than_the_windows() -> None:
    draw = random.Random(3)
    regime = Regime()
    single, filtered = [], []
    for _ in range(40):
        factor = math.exp(draw.gauss(0, 0.08))
        estimate, regime, _ = _seen(factor, regime)
        single.append(abs(math.log(factor)))
        filtered.append(abs(math.log(estimate.parameters.cpu_seconds / 0.01)))
    assert sum(filtered[5:]) < 0.6 * sum(single[5:])


def test_one_odd_window_moves_nothing_and_is_reported() -> None:
    regime = Regime()
    for _ in range(4):
        _, regime, _ = _seen(1.0, regime)
    before, regime, _ = _seen(1.0, regime)
    after, regime, refused = _seen(2.5, regime)
    assert refused
    assert math.isclose(after.parameters.cpu_seconds, before.parameters.cpu_seconds)
    assert math.isclose(after.tasks_per_second, before.tasks_per_second)
    _, _, again = _seen(1.0, regime)
    assert not again


def test_a_second_odd_window_in_a_row_is_believed() -> None:
    regime = Regime()
    for _ in range(5):
        _, regime, _ = _seen(1.0, regime)
    _, regime, first = _seen(2.5, regime)
    after, regime, second = _seen(2.5, regime)
    assert (first, second) == (True, False)
    assert math.isclose(after.parameters.cpu_seconds, 0.025, rel_tol=0.01)


def test_another_thread_count_starts_afresh() -> None:
    regime = Regime()
    for _ in range(5):
        _, regime, _ = _seen(1.0, regime)
    after, _, refused = _seen(2.0, regime, threads=8)
    assert not refused
    assert math.isclose(after.parameters.cpu_seconds, 0.02, rel_tol=0.01)


def test_what_was_learned_survives_the_memo_and_damage_to_it_is_dropped() -> None:
    plant = SyntheticWorkload(NetworkParameters(0.0, 5e-3, 60e-6, 2.0), threads=2, noise=0.02)
    document = drive(plant, make_spec(cpu={"limitPolicy": "Keep"}), 12, decide=decide)
    memo, problem = load_memo(document)
    assert problem == ""
    assert memo.regime.beliefs["cpu"].variance > 0
    assert load_memo(memo.to_json())[0] == memo
    broken = memo.to_json()
    broken["regime"]["beliefs"]["cpu"]["variance"] = -1.0  # type: ignore[index]
    dropped, problem = load_memo(broken)
    assert (dropped, bool(problem)) == (Memo(), True)
