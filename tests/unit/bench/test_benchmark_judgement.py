"""What the benchmark says of runs whose truth is known."""

import pytest

from slimscale.bench.dynamics import changes_between, probing, recoveries
from slimscale.bench.goals import goals_of
from slimscale.bench.judgement import judge, judge_steady
from slimscale.bench.metrics import compare, compare_all, set_speed_up, time_cut
from slimscale.bench.results import Results
from slimscale.bench.runner import RunRecord
from tests.support.bench_cases import curves_of, make_run

FEW = (100.0, 80.0, 40.0, 10.0)
"""Tasks a second with 1, 2, 4, 8 threads: one thread is best."""
MANY = (10.0, 20.0, 40.0, 80.0)
NAME = "steps-c4-whole-exponential"
CURVES = curves_of((100.0, FEW), (100.0, MANY))


def results(*runs: RunRecord) -> Results:
    return Results.of(runs, {run.scenario: CURVES for run in runs})


def test_runs_are_compared_by_seed_and_missing_ones_left_out() -> None:
    found = results(
        make_run("autothread", tasks=(20, 20), seed=1),
        make_run("autothread", tasks=(90, 90), seed=2),
        make_run("unset", tasks=(10, 10), seed=1),
        make_run("unset", tasks=(99, 99), seed=3),
    )
    comparison = compare(found, "autothread", "unset")
    assert comparison is not None
    assert comparison.speed_up.value == pytest.approx(2.0)
    assert comparison.average_of_ratios == comparison.ratio_of_averages == 2.0
    assert compare(found, "autothread", "goetz") is None


def test_average_of_ratios_and_ratio_of_averages_are_told_apart() -> None:
    found = results(
        make_run("autothread", tasks=(40,), scenario="steps-a"),
        make_run("unset", tasks=(10,), scenario="steps-a"),
        make_run("autothread", tasks=(1000,), scenario="steps-b"),
        make_run("unset", tasks=(1000,), scenario="steps-b"),
    )
    comparison = compare(found, "autothread", "unset")
    assert comparison is not None
    assert comparison.average_of_ratios == pytest.approx(2.5)
    assert comparison.ratio_of_averages == pytest.approx(1040 / 1010)
    assert comparison.speed_up.value == pytest.approx(2.0)


def test_losses_are_counted_like_wins() -> None:
    runs = []
    for seed in range(1, 6):
        noisy = 90 + 4 * seed  # now above, now below: neither won nor lost
        for name, ours in (("steps-a", noisy), ("steps-b", 200 + seed), ("steps-c", 50)):
            runs.append(make_run("autothread", tasks=(ours,), scenario=name, seed=seed))
            runs.append(make_run("unset", tasks=(100,), scenario=name, seed=seed))
    comparison = compare(results(*runs), "autothread", "unset")
    assert comparison is not None
    assert (comparison.wins, comparison.losses, comparison.scenarios) == (1, 1, 3)


def test_every_comparison_of_a_table_is_corrected_for_all() -> None:
    runs = []
    for seed in range(1, 11):
        runs.append(make_run("autothread", tasks=(200,), seed=seed))
        runs.extend(make_run(base, tasks=(100,), seed=seed) for base in ("unset", "fixed-8"))
    found = compare_all(results(*runs), "autothread", ["unset", "fixed-8", "not run"])
    assert [c.base for c, _ in found] == ["unset", "fixed-8"]
    assert [p for _, p in found] == pytest.approx([2 * 2 / 1024] * 2)


def test_the_speed_up_over_a_set_is_over_all_its_members() -> None:
    found = results(
        make_run("autothread", tasks=(40,)),
        make_run("unset", tasks=(10,)),
        make_run("fixed-8", tasks=(40,)),
    )
    over = set_speed_up(found, "autothread", ["unset", "fixed-8"])
    assert over is not None
    assert over.value == pytest.approx(2.0)


def test_time_for_the_same_work_is_read_inside_a_tick() -> None:
    fast = make_run(tasks=(100, 100, 100, 100))
    slow = make_run("unset", tasks=(30, 30, 30, 30))
    # 120 tasks: 6 s of 5 s ticks against 20 s
    assert time_cut(fast, slow) == pytest.approx(1.0 - 6.0 / 20.0)
    assert time_cut(slow, fast) == pytest.approx(1.0 - 20.0 / 6.0)


def test_recovery_counts_changes_and_seconds_to_five_per_cent_of_the_new_best() -> None:
    run = make_run(
        tasks=(1,) * 40, changes=((0.0, 1), (110.0, 2), (120.0, 4), (150.0, 8), (160.0, 4))
    )
    first, second = recoveries(run, CURVES)
    assert first.was_near
    assert (first.steps, first.seconds, first.loss) == (0, 0.0, 0.0)
    assert not second.was_near
    assert (second.steps, second.seconds) == (3, 50.0)
    assert second.kept == pytest.approx(10.0 / 50.0)


def test_a_change_that_was_never_followed_says_so() -> None:
    run = make_run(tasks=(1,) * 40, changes=((0.0, 1),))
    second = recoveries(run, CURVES)[1]
    assert second.seconds is None
    assert second.loss == pytest.approx(1.0 - 10.0 / 80.0)


def test_probing_is_measured_against_the_last_good_count_of_the_same_phase() -> None:
    run = make_run(
        tasks=(1,) * 40,
        changes=((0.0, 1), (20.0, 4), (30.0, 2), (35.0, 1), (150.0, 8), (170.0, 4), (180.0, 8)),
    )
    found = probing(run, CURVES)
    assert found.worst_share == pytest.approx(0.4)
    # 4 then 2 threads: 15 s below 90 % of 100/s; 4 threads after 8 in the second phase: 10 s
    assert found.longest_seconds == pytest.approx(15.0)


def test_a_fall_that_the_load_brought_is_nobodys_probing() -> None:
    run = make_run(tasks=(1,) * 40, changes=((0.0, 1),))
    found = probing(run, CURVES)
    assert (found.worst_share, found.longest_seconds) == (1.0, 0.0)


def test_only_changes_after_the_first_minutes_of_a_steady_hour_count() -> None:
    run = make_run(
        tasks=(1,) * 720, changes=((0.0, 4), (5.0, 8), (700.0, 6), (3000.0, 8)),
        scenario="steady-c4-computing-lognormal",
    )  # fmt: skip
    assert changes_between(run, 600.0, 3600.0) == 2
    judged = judge_steady(Results.of([run], {}))
    assert judged["autothread"]["worst"] == 2
    assert judged["autothread"]["without_any"] == 0


def test_the_judgement_shows_every_policy_and_where_ours_is_the_worse_one() -> None:
    runs = []
    for seed in (1, 2, 3):
        for name, ours in (("drift-c4-whole-pareto", 60), (NAME, 90)):
            runs += [
                make_run("autothread", tasks=(ours + seed,), scenario=name, seed=seed),
                make_run("floor-of-quota", tasks=(80,), scenario=name, seed=seed),
                make_run("best-per-phase", tasks=(100,), scenario=name, seed=seed),
            ]
    judged = judge(results(*runs))
    assert [row["policy"] for row in judged["ranking"]] == [
        "best-per-phase", "floor-of-quota", "autothread",
    ]  # fmt: skip
    ours = judged["ranking"][2]
    assert ours["worst_scenario"] == "drift-c4-whole-pareto"
    assert ours["by_shape"]["steps"] == pytest.approx(0.92)
    assert ours["regret"]["worst"] == pytest.approx(0.38)
    (drifting,) = judged["drifting"]
    assert drifting["losses"] == 1
    floor = {row["scenario"]: row["over_floor"]["high"] for row in judged["scenarios"]}
    assert floor["drift-c4-whole-pareto"] < 1.0 < floor[NAME]


def test_a_goal_that_was_missed_says_no_and_by_how_much() -> None:
    runs = []
    for seed in (1, 2, 3):
        for name, ours in (("drift-c4-whole-pareto", 60), (NAME, 97)):
            runs += [
                make_run("autothread", tasks=(ours,), scenario=name, seed=seed),
                make_run("floor-of-quota", tasks=(80,), scenario=name, seed=seed),
                make_run("xgboost-once", tasks=(30,), scenario=name, seed=seed),
                make_run("best-per-phase", tasks=(100,), scenario=name, seed=seed),
            ]
    goals = {goal.what: goal for goal in goals_of(judge(results(*runs)), None)}
    floor = goals["scenarios below floor-of-quota by more than noise"]
    assert not floor.met
    assert floor.measured == "1 of 2: drift-c4-whole-pareto"
    regret = goals["regret against the best per phase, mean of scenarios"]
    assert not regret.met
    assert regret.measured.startswith("21.5%")
    over = goals["average throughput over xgboost-once's where the ratio drifts"]
    assert over.met
    assert over.measured == "ratio of averages 2.00, average of ratios 2.00"
