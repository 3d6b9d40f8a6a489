"""Adam (Kingma and Ba 2015) on one vector, upwards."""

import numpy as np

from slimscale.routing.learned.observation import FloatArray

__all__ = ["Adam"]


class Adam:
    def __init__(self, size: int, *, first: float = 0.9, second: float = 0.99) -> None:
        self._decay = (first, second)
        self._first = np.zeros(size)
        self._second = np.zeros(size)
        self._count = 0

    def step(self, gradient: FloatArray, rate: float) -> FloatArray:
        """What to add to the parameters."""
        first, second = self._decay
        self._count += 1
        self._first += (1.0 - first) * (gradient - self._first)
        self._second += (1.0 - second) * (gradient * gradient - self._second)
        mean = self._first / (1.0 - first**self._count)
        spread = np.sqrt(self._second / (1.0 - second**self._count))
        return np.asarray(rate * mean / (spread + 1e-8))
