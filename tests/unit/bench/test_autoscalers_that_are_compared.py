"""HPA and KPA as their controllers work, and the benchmark's command and report."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from slimscale.bench.autoscaling.command import AutoscalingRequest, bench_autoscaling
from slimscale.bench.autoscaling.report import summaries as rows_of
from slimscale.bench.autoscaling.report import verdicts
from slimscale.bench.autoscaling.runner import Record, turns
from slimscale.bench.autoscaling.scalers import Hpa, Kpa
from slimscale.bench.autoscaling.scenario import TRACES, TUNED_UNTIL_SECONDS, Scenario
from slimscale.domain.scaling import DemandObservation, ScalingObservation
from slimscale.exceptions import SlimError
from slimscale.routing.policy import Width
from slimscale.simulate.serving.cluster import SimCluster
from slimscale.simulate.serving.plane import PlaneView
from slimscale.simulate.serving.service import SimPool, SimService

POOL = SimPool("cpu", 0.02, 0.05, max_replicas=50)
SERVICE = SimService((POOL,), (Width(1.0, "m", 0.9, 1.0),), slo_seconds=0.5, deadline_seconds=2.0)


def cluster_of(ready: int, starting: int = 0) -> SimCluster:
    cluster = SimCluster(SERVICE, {"cpu": ready}, Random(1))
    cluster.scale("cpu", ready + starting, 990.0)
    return cluster


def view(
    cluster: SimCluster,
    cpu: float | dict[str, float],
    *,
    now: float = 1000.0,
    stable: float = 0.0,
    panic: float = 0.0,
) -> PlaneView:
    usage = cpu if isinstance(cpu, dict) else {p.name: cpu for p in cluster.pods if p.ready}
    demand = DemandObservation(now, stable_rows_per_second=stable, panic_rows_per_second=panic)
    return PlaneView(now, cluster, ScalingObservation(now, demand, ()), usage, now)


def ask(hpa: Hpa | Kpa, seen: PlaneView) -> int:
    return hpa.scale(seen)[0]["cpu"]


def hpa(**changes: float) -> Hpa:
    return replace(Hpa(0.5, 1, 50), **changes)  # type: ignore[arg-type]


def test_hpa_scales_by_the_ratio_of_usage_to_target() -> None:
    assert ask(hpa(), view(cluster_of(4), 0.9)) == 8
    assert ask(hpa(), view(cluster_of(4), 0.6)) == 5


def test_hpa_leaves_deviations_within_its_tolerance() -> None:
    assert ask(hpa(), view(cluster_of(10), 0.55)) == 10
    assert ask(hpa(), view(cluster_of(10), 0.46)) == 10


def test_hpa_counts_unready_pods_as_idle_on_the_way_up() -> None:
    cluster = cluster_of(4, starting=4)
    cpu = {pod.name: 1.0 if pod.ready else 0.0 for pod in cluster.pods}
    assert ask(hpa(), view(cluster, cpu)) == 8, "4 busy and 4 unready pods are at the target"


def test_hpa_counts_pods_without_a_figure_as_fully_used_on_the_way_down() -> None:
    cluster = cluster_of(4)
    cpu = {pod.name: 0.1 for pod in cluster.pods[:2]}
    assert ask(hpa(down_stabilisation_seconds=0.0), view(cluster, cpu)) == 4


def test_hpa_without_any_figure_changes_nothing() -> None:
    assert ask(hpa(), view(cluster_of(4), {})) == 4


def test_hpa_waits_five_minutes_before_it_goes_down() -> None:
    scaler, cluster = hpa(), cluster_of(8)
    ask(scaler, view(cluster, 0.5))
    assert ask(scaler, view(cluster, 0.1, now=1290.0)) == 8
    assert ask(scaler, view(cluster, 0.1, now=1310.0)) == 2


def test_hpa_adds_at_most_four_pods_or_doubles_in_fifteen_seconds() -> None:
    assert ask(hpa(target=0.1), view(cluster_of(2), 1.0)) == 6
    scaler, cluster = hpa(target=0.1), cluster_of(10)
    assert ask(scaler, view(cluster, 1.0)) == 20
    cluster.scale("cpu", 20, 1001.0)
    assert ask(scaler, view(cluster, 1.0, now=1005.0)) == 20


def test_kpa_follows_the_stable_window_and_halves_at_most() -> None:
    kpa = Kpa(10.0, 1, 50)
    assert ask(kpa, view(cluster_of(4), 0.0, stable=61.0, panic=61.0)) == 7
    assert ask(Kpa(10.0, 1, 50), view(cluster_of(8), 0.0, stable=5.0)) == 4


def test_kpa_panics_at_twice_what_is_ready_and_does_not_go_down_for_a_minute() -> None:
    kpa, cluster = Kpa(10.0, 1, 50), cluster_of(2)
    assert ask(kpa, view(cluster, 0.0, stable=15.0, panic=25.0)) == 2, "3 pods are below 200 % of 2"
    assert ask(kpa, view(cluster, 0.0, stable=15.0, panic=95.0)) == 10
    cluster.scale("cpu", 10, 1001.0)
    assert ask(kpa, view(cluster, 0.0, now=1050.0, stable=15.0, panic=5.0)) == 10
    assert ask(kpa, view(cluster, 0.0, now=1062.0, stable=15.0, panic=5.0)) < 10


def test_turns_count_changes_of_direction() -> None:
    assert turns([1, 3, 5, 4, 4, 6, 2]) == 3
    assert turns([2, 2, 2]) == 0


def record(scaler: str, attainment: float, pods: float, changes: int = 0) -> Record:
    return Record(
        "code", scaler, 1, 10, attainment, pods, changes, changes, 3, 0.2, 0, 0, 0.9, 1.0, ()
    )


@pytest.mark.parametrize(
    ("attainment", "pods", "turned", "met"),
    [
        (0.9, 70.0, 2, True),
        (0.79, 70.0, 2, False),
        (0.99, 81.0, 2, False),
        (0.99, 70.0, 3, False),
    ],
)
def test_the_goal_asks_for_attainment_fewer_pods_and_no_more_turns(
    attainment: float, pods: float, turned: int, met: bool
) -> None:
    records = [
        record("slimscale", attainment, pods, turned),
        record("hpa-cpu-50", 0.8, 60.0, 2),
        record("static-peak", 1.0, 100.0),
    ]
    (verdict,) = verdicts(rows_of(records))
    assert verdict["met"] is met


@pytest.mark.slow
def test_the_command_runs_every_autoscaler_and_writes_its_report(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    traces.mkdir()
    for name in ("code", "conv"):
        lines = ["t_ms"] + [str(at) for at in range(0, 40_000, 400)]
        (traces / f"azure-llm-2023-{name}.csv").write_text("\n".join(lines))
    request = AutoscalingRequest(True, 1, traces, tmp_path / "out", tmp_path / "work")
    bench_autoscaling(request)
    page = (tmp_path / "out" / "autoscaling.md").read_text()
    for scaler in ("slimscale", "hpa-cpu-50", "hpa-cpu-70", "kpa-rps", "static-peak"):
        assert f"| {scaler} |" in page or f"| **{scaler}** |" in page
    assert "against hpa-cpu-50" in page
    found = json.loads((tmp_path / "out" / "autoscaling.json").read_text())
    assert {run["requests"] for run in found["runs"]} == {200}
    assert (tmp_path / "out" / "autoscaling.png").stat().st_size > 1000
    # What is done is kept: the second time nothing is simulated.
    kept = (tmp_path / "work" / "autoscaling.jsonl").read_text()
    bench_autoscaling(request)
    assert (tmp_path / "work" / "autoscaling.jsonl").read_text() == kept


def test_seeds_begin_the_second_half_at_other_seconds_and_see_nothing_of_the_first(
    tmp_path: Path,
) -> None:
    end = TUNED_UNTIL_SECONDS + 1000.0
    lines = ["t_ms", *(str(1000 * at) for at in range(int(end) + 1))]
    (tmp_path / TRACES[0].file).write_text("\n".join(lines))
    held_out = Scenario(TRACES[0], False, whole=False)
    lasts = [held_out.arrivals(tmp_path, seed).last for seed in (1, 2, 3)]
    assert len(set(map(round, lasts))) == 3
    assert all(700.0 <= last <= 1001.0 for last in lasts)
    assert held_out.arrivals(tmp_path, 1) == held_out.arrivals(tmp_path, 1)


def test_a_missing_trace_is_named_with_the_remedy(tmp_path: Path) -> None:
    request = AutoscalingRequest(True, 1, tmp_path, None, tmp_path / "work", only="code")
    with pytest.raises(SlimError, match="--traces"):
        bench_autoscaling(request)
