"""How much of the tolerance goes to CPU and how much to threads."""

import numpy as np
import pytest

from slimscale.threads.bounds import CpuBounds
from slimscale.threads.objective import choose
from slimscale.threads.predictor import Surface
from tests.support.observations import make_spec

FIXED = CpuBounds(1000, 4000, False, "test")
FREE = CpuBounds(1000, 4000, True, "test")


def _flat_top() -> Surface:
    """2 threads give 96 %, 3 give 98 %, 4 give 99.5 %, 5 give all; half the CPU gives 98 % of it."""
    top = np.array([50.0, 96.0, 98.0, 99.5, 100.0, 100.0])
    return Surface((2.0, 4.0), np.vstack([0.98 * top, top]), 0.01)


@pytest.mark.parametrize(("percent", "threads"), [(0, 5), (3, 4), (9, 3), (15, 2)])
def test_threads_use_up_a_third_of_the_tolerance(percent: int, threads: int) -> None:
    spec = make_spec(objective={"tolerancePercent": percent}, cpu={"limitPolicy": "Keep"})
    assert choose(_flat_top(), spec, FIXED, least=1, most=6).threads == threads


def test_cpu_uses_up_all_of_it() -> None:
    spec = make_spec(cpu={"limitPolicy": "Headroom", "headroomPercent": 0})
    assert choose(_flat_top(), spec, FREE, least=1, most=6).cpu_cores == 2.0
