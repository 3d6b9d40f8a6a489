"""Times that are drawn have the mean and the variation that was asked for."""

import numpy as np
import pytest

from slimscale.simulate.distributions import seed_state
from slimscale.simulate.engine import run, start_threads
from slimscale.simulate.state import new_state
from slimscale.simulate.workload import Family, Host, TimeDistribution, Workload
from tests.support.simulated import exponential, time_of

COUNT = 40_000


def drawn(time: TimeDistribution, seed: int = 3) -> np.ndarray:
    """A single thread that only blocks: each task takes exactly one drawn time."""
    workload = Workload(exponential(0.0), time, exponential(0.0))
    state = new_state(workload, Host(1), seed=seed_state(seed))
    state["wanted"] = 1
    start_threads(state)
    ends = np.empty(COUNT)
    for index in range(COUNT):
        run(state, 1e300, index + 1)
        ends[index] = state["now"][0]
    return np.diff(ends, prepend=0.0)


@pytest.mark.parametrize("family", [Family.LOGNORMAL, Family.BIMODAL, Family.PARETO])
@pytest.mark.parametrize("variation", [0.25, 1.0, 4.0])
def test_a_family_has_the_mean_and_variation_asked_for(family: Family, variation: float) -> None:
    times = drawn(time_of(2e-3, family, variation))
    spread = np.sqrt(variation / COUNT)
    assert np.mean(times) == pytest.approx(2e-3, rel=5 * spread)
    # Heavy tails make the sample's own variation a noisy figure.
    tolerance = 0.05 if family is Family.BIMODAL else 0.3
    assert np.var(times) / np.mean(times) ** 2 == pytest.approx(variation, rel=tolerance)


def test_exponential_times_have_the_exponential_quantiles() -> None:
    times = drawn(exponential(2e-3))
    for share in (0.1, 0.5, 0.9, 0.99):
        expected = -2e-3 * np.log1p(-share)
        assert np.quantile(times, share) == pytest.approx(expected, rel=0.05)


def test_lognormal_times_have_the_lognormal_median() -> None:
    times = drawn(time_of(2e-3, Family.LOGNORMAL, 4.0))
    assert np.median(times) == pytest.approx(2e-3 / np.sqrt(5.0), rel=0.03)


def test_constant_times_are_constant_whatever_variation_is_given() -> None:
    assert np.ptp(drawn(time_of(2e-3, Family.DETERMINISTIC, 9.0))) < 1e-9
    assert np.ptp(drawn(time_of(2e-3, Family.PARETO, 0.0))) < 1e-9


def test_successive_times_are_unrelated() -> None:
    times = np.log(drawn(exponential(1.0)))
    for lag in (1, 2, 3, 7):
        assert abs(np.corrcoef(times[:-lag], times[lag:])[0, 1]) < 5 / np.sqrt(COUNT)


def test_neighbouring_seeds_give_unrelated_times() -> None:
    first, second = drawn(exponential(1.0), seed=3), drawn(exponential(1.0), seed=4)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(COUNT)


@pytest.mark.parametrize(
    ("mean", "variation"), [(-1.0, 1.0), (float("nan"), 1.0), (1.0, -0.1), (1e9, 1.0)]
)
def test_impossible_times_are_refused(mean: float, variation: float) -> None:
    with pytest.raises(ValueError, match=r"mean_seconds|squared_variation"):
        TimeDistribution(Family.LOGNORMAL, mean, variation)


def test_a_task_without_any_work_is_refused() -> None:
    with pytest.raises(ValueError, match="must compute or block"):
        Workload(exponential(0.0), exponential(0.0), exponential(1e-3))
