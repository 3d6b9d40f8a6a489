"""The data set: what is held out is held out, and every case can be made again alone."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="pip install slimscale[train]")

from slimscale.simulate.plant import Plant
from slimscale.training.raw import GRID, Labelling, simulate_case, unpack_samples
from slimscale.training.rows import rows_of
from slimscale.training.workloads import (
    HELD_OUT_FAMILIES,
    TRAINING_FAMILIES,
    Split,
    draw_case,
)

LABELS = Labelling(counts=3, tasks=50)


def test_no_family_is_both_trained_on_and_held_out() -> None:
    assert not set(HELD_OUT_FAMILIES) & set(TRAINING_FAMILIES)
    for index in range(60):
        assert draw_case(Split.HELD_OUT, index, seed=1).family in HELD_OUT_FAMILIES
        for split in (Split.TRAIN, Split.VALIDATION, Split.SEEN):
            assert draw_case(split, index, seed=1).family in TRAINING_FAMILIES


def test_splits_and_seeds_never_share_a_case() -> None:
    drawn = [
        draw_case(split, index, seed=seed)
        for split in Split
        for seed in (1, 2)
        for index in range(20)
    ]
    assert len({case.seed for case in drawn}) == len(drawn)
    assert len({case.workload for case in drawn}) == len(drawn)


@pytest.mark.slow
def test_a_case_gives_the_same_figures_again() -> None:
    case = draw_case(Split.TRAIN, 11, seed=1)
    first, again = (simulate_case(case, LABELS) for _ in range(2))
    for name in ("samples", "earlier", "timing", "labels"):
        assert np.array_equal(getattr(first, name), getattr(again, name), equal_nan=True)


@pytest.mark.slow
def test_what_is_stored_is_what_the_pod_served() -> None:
    case = draw_case(Split.TRAIN, 4, seed=1)
    raw = simulate_case(case, LABELS)
    samples = unpack_samples(raw.samples, "plant-0")
    served = Plant(case.workload, case.host, threads=case.threads, seed=1).sample()
    assert samples[-1].threads_applied == case.threads
    assert samples[-1].cpu_quota_cores == served.cpu_quota_cores
    assert samples[-1].task is not None
    assert served.task is not None
    assert samples[-1].task.upper_bounds_seconds == served.task.upper_bounds_seconds
    assert samples[-1].task.count == pytest.approx(samples[-1].tasks_total, rel=1e-9)


@pytest.mark.slow
def test_rows_have_features_a_bound_above_the_model_and_a_few_labels() -> None:
    found = 0
    for index in range(12):
        case = draw_case(Split.TRAIN, index, seed=1)
        rows = rows_of(case, simulate_case(case, LABELS))
        if rows is None:
            continue
        found += 1
        assert np.isfinite(rows.branch).all()
        assert np.isfinite(rows.trunk).all()
        assert (rows.bound > rows.analytic).all()
        assert rows.trunk.shape[1] == len(GRID)
        assert (np.isfinite(rows.labels).sum(axis=1) == LABELS.counts).all()
    assert found >= 8
