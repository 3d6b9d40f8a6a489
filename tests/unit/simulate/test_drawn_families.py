"""Random workloads lie in the ranges of their description and can be split by family."""

from collections import Counter

import pytest

from slimscale.simulate.families import FAMILY_NAMES, draw_workload
from slimscale.simulate.workload import Family, Waiting

DRAWN = [draw_workload(1, index) for index in range(3000)]


def test_any_of_a_sequence_can_be_drawn_alone() -> None:
    assert draw_workload(1, 1234) == DRAWN[1234]
    assert draw_workload(2, 1234) != DRAWN[1234]


def test_every_family_comes_up_about_as_often() -> None:
    counts = Counter(drawn.family for drawn in DRAWN)
    assert set(counts) == set(FAMILY_NAMES)
    assert min(counts.values()) > 0.6 * 3000 / len(FAMILY_NAMES)


def test_a_family_says_what_shapes_the_times_and_what_tasks_do() -> None:
    for drawn in DRAWN:
        shape, kind = drawn.family.split("-")
        work = drawn.workload
        assert work.cpu.family is work.blocking.family is Family(shape)
        share = work.cpu.mean_seconds / (work.cpu.mean_seconds + work.blocking.mean_seconds)
        low, high = {"computes": (0.9, 1.0), "blocks": (0.0, 0.2), "mixes": (0.2, 0.9)}[kind]
        assert low - 1e-9 <= share <= high + 1e-9


def test_values_lie_in_their_ranges() -> None:
    for drawn in DRAWN:
        work, host = drawn.workload, drawn.host
        assert work.ratio * (1 + 1e-9) >= 0.25
        assert work.ratio <= 512 * (1 + 1e-9)
        assert 1 <= host.cores <= 64
        assert host.quota_cores is None or 0.25 <= host.quota_cores <= max(host.cores, 0.25)
        assert work.outstanding is None or 1 <= work.outstanding <= 1024
        assert 0 <= work.contention_linear <= 0.1
        assert 1e-6 <= work.contention_quadratic <= 1e-2
        assert 0 <= work.contention_handover <= 2
        assert work.dispatch.effective_variation <= 4
        tasks_a_cpu_second = 1 / (work.cpu.mean_seconds + work.dispatch.mean_seconds)
        assert 1e2 * (1 - 1e-9) <= tasks_a_cpu_second <= 1e5 * (1 + 1e-9)


def test_ranges_are_filled_evenly_on_a_logarithmic_scale() -> None:
    low = sum(drawn.workload.ratio < 11.3 for drawn in DRAWN) / len(DRAWN)  # sqrt(0.25 * 512)
    assert low == pytest.approx(0.5, abs=0.04)
    assert sum(drawn.host.quota_cores is None for drawn in DRAWN) / 3000 == pytest.approx(
        0.5, abs=0.04
    )
    spinning = sum(drawn.workload.waiting is Waiting.SPIN for drawn in DRAWN) / 3000
    assert spinning == pytest.approx(0.25, abs=0.04)


def test_only_the_families_asked_for_are_drawn() -> None:
    asked = ("pareto-blocks", "bimodal-mixes")
    assert {draw_workload(1, index, families=asked).family for index in range(100)} == set(asked)


def test_unknown_families_are_refused() -> None:
    with pytest.raises(ValueError, match="pareto-sleeps"):
        draw_workload(1, 0, families=("pareto-sleeps",))
