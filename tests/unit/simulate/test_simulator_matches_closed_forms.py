"""The simulated throughput is what theory says, where theory says it exactly."""

import pytest

from slimscale.simulate.closed_forms import constant_dispatch_rate, shared_cpu_rate
from slimscale.simulate.measure import measure_curve
from slimscale.simulate.validation import ValidationRow, validation_markdown, validation_rows
from slimscale.simulate.workload import Family, Host, Waiting, Workload
from slimscale.threads.finite_source import FiniteSourceMM1
from tests.support.simulated import exponential, time_of


@pytest.fixture(scope="module")
def rows() -> tuple[ValidationRow, ...]:
    return validation_rows(7, tasks=2_000)


def test_every_closed_form_is_met(rows: tuple[ValidationRow, ...]) -> None:
    assert len(rows) > 50
    assert [row for row in rows if not row.agrees] == []


def test_the_intervals_are_narrow_enough_to_tell(rows: tuple[ValidationRow, ...]) -> None:
    assert max(row.half_width / row.expected for row in rows) < 0.08


@pytest.mark.parametrize(
    ("task", "dispatch", "threads", "known"),
    [
        # science.md 1.2: shapes that no closed form of ours made; mu_b = 1
        (Family.EXPONENTIAL, Family.EXPONENTIAL, 8, 0.7644),
        (Family.EXPONENTIAL, Family.DETERMINISTIC, 8, 0.7995),
        (Family.DETERMINISTIC, Family.DETERMINISTIC, 8, 0.8889),
        (Family.EXPONENTIAL, Family.DETERMINISTIC, 16, 0.9999),
        (Family.EXPONENTIAL, Family.LOGNORMAL, 16, 0.9831),
    ],
)
def test_known_values_of_other_simulations_are_met(
    task: Family, dispatch: Family, threads: int, known: float
) -> None:
    workload = Workload(exponential(0.0), time_of(8.0, task), time_of(1.0, dispatch, 4.0))
    found = measure_curve(workload, Host(64), (threads,), seed=5, tasks=100_000)[0]
    assert found == pytest.approx(known, rel=0.015)


def test_the_exact_chains_agree_with_the_finite_source_queue() -> None:
    expected = FiniteSourceMM1(8, 1 / 8.0, 1.0).solve().throughput_per_second
    found = shared_cpu_rate(8, cpu_seconds=8.0, dispatch_seconds=1.0, cores=8, waiting=Waiting.PARK)
    assert found == pytest.approx(expected, rel=1e-12)
    assert constant_dispatch_rate(1, task_seconds=8.0, dispatch_seconds=1.0) == pytest.approx(1 / 9)


def test_the_table_says_how_many_rows_agree() -> None:
    good = ValidationRow("a", "b", 1.0, 1.001, 0.01)
    bad = ValidationRow("a", "b", 1.0, 1.1, 0.01)
    text = validation_markdown((good, bad))
    assert "1 of 2 rows agree." in text
    assert "**no**" in text
