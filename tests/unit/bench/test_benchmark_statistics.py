"""Means, intervals and tests that the tables rest on."""

import math

import numpy as np
import pytest
from scipy import stats

from slimscale.bench.statistics import geometric_mean, holm, ratio_interval, sign_flip_p_value


def test_twice_and_half_as_fast_is_a_tie_in_the_geometric_mean() -> None:
    assert geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="no values"):
        geometric_mean([])


def test_a_scenario_counts_once_however_many_seeds_it_has() -> None:
    interval = ratio_interval({"a": [2.0] * 50, "b": [0.5]}, seed=1)
    assert interval.value == pytest.approx(1.0)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for trial in range(60):
        groups = {str(g): np.exp(rng.normal(0.1, 0.2, size=1)).tolist() for g in range(30)}
        interval = ratio_interval(groups, seed=trial)
        covered += interval.low <= math.exp(0.1) <= interval.high
    assert 50 <= covered <= 60


def test_the_interval_of_one_scenario_comes_from_its_seeds() -> None:
    interval = ratio_interval({"a": [1.0, 1.1, 1.2, 1.3]}, seed=1)
    assert 1.0 < interval.low < interval.value < interval.high < 1.3


def test_sign_flips_agree_with_an_exact_permutation_test() -> None:
    differences = [0.3, 0.1, -0.05, 0.2, 0.15, 0.4, 0.02]
    exact = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip_p_value(differences, seed=1) == pytest.approx(float(exact.pvalue))


def test_ten_wins_out_of_ten_are_significant_and_a_mixture_is_not() -> None:
    assert sign_flip_p_value([0.1] * 10, seed=1) == pytest.approx(2 / 1024)
    assert sign_flip_p_value([0.1, -0.1] * 5, seed=1) == 1.0
    assert sign_flip_p_value([0.0] * 10, seed=1) == 1.0


def test_many_pairs_use_random_flips_and_come_to_the_same() -> None:
    rng = np.random.default_rng(1)
    shifted = rng.normal(0.8, 1.0, size=20)
    expected = stats.ttest_1samp(shifted, 0.0).pvalue
    assert sign_flip_p_value(shifted.tolist(), seed=1) == pytest.approx(expected, abs=0.01)


def test_holm_multiplies_by_what_is_left_and_never_falls() -> None:
    corrected = holm({"a": 0.01, "b": 0.04, "c": 0.03})
    assert corrected == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
