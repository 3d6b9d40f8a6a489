"""A graph encoder over waiting requests and machines: each request sees all machines and the reverse.

The bipartite form of the dynamic disjunctive graph of ISBJSSP (science brief 3, arXiv 2302.02506): edges are
the (request, machine) pairs that may happen now, and vanish with a machine that has shut down.

    h_r = tanh(A x_r + a)   h_m = tanh(B x_m + b)
    g_r = mean over the edges of r of tanh(C [h_m, e]),   g_m = mean over those of m of tanh(D [h_r, e])
    score(r, m) = prior(r, m) + v . tanh(E [h_r, g_r] + F [h_m, g_m] + G e)

Means, not sums, so that it takes any number of both. The prior is a rule's score, and v begins at 0, so
that an untrained encoder is that rule.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["BipartiteEncoder"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BipartiteEncoder:
    """Weights in one vector, so that evolution strategies can train it."""

    requests: int
    """Features of a request."""
    machines: int
    """Features of a machine."""
    edges: int
    """Features of a pair."""
    hidden: int = 8

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """A, B, C, D, E, F, G with their biases as a last column where they have one, then v."""
        h = self.hidden
        return (
            (h, self.requests + 1), (h, self.machines + 1), (h, h + self.edges),
            (h, h + self.edges), (h, 2 * h), (h, 2 * h), (h, self.edges + 1), (1, h),
        )  # fmt: skip

    @property
    def size(self) -> int:
        return sum(rows * columns for rows, columns in self.shapes)

    def initial(self, rng: np.random.Generator) -> FloatArray:
        """Weights of an encoder that gives its prior."""
        parts = [rng.normal(0.0, columns**-0.5, rows * columns) for rows, columns in self.shapes]
        parts[-1][:] = 0.0
        return np.concatenate(parts)

    def scores(
        self,
        weights: FloatArray,
        *,
        requests: FloatArray,
        machines: FloatArray,
        edges: FloatArray,
        mask: NDArray[np.bool_],
        prior: FloatArray,
    ) -> FloatArray:
        """[R, M], -inf where there is no edge.

        requests [R, requests], machines [M, machines], edges [R, M, edges], mask and prior [R, M].
        """
        a, b, c, d, e, f, g, v = self._matrices(weights)
        h_r = np.tanh(requests @ a[:, :-1].T + a[:, -1])
        h_m = np.tanh(machines @ b[:, :-1].T + b[:, -1])
        h = self.hidden
        of_machines = np.tanh((h_m @ c[:, :h].T)[None] + edges @ c[:, h:].T)
        of_requests = np.tanh((h_r @ d[:, :h].T)[:, None] + edges @ d[:, h:].T)
        there = mask[:, :, None]
        count_r, count_m = mask.sum(1), mask.sum(0)
        g_r = (of_machines * there).sum(1) / np.maximum(count_r, 1)[:, None]
        g_m = (of_requests * there).sum(0) / np.maximum(count_m, 1)[:, None]
        left = np.concatenate([h_r, g_r], axis=1) @ e.T
        right = np.concatenate([h_m, g_m], axis=1) @ f.T
        pair = np.tanh(left[:, None] + right[None] + edges @ g[:, :-1].T + g[:, -1])
        return np.where(mask, prior + pair @ v[0], -np.inf)

    def _matrices(self, weights: FloatArray) -> list[FloatArray]:
        if weights.shape != (self.size,):
            raise ValueError(f"weights has shape {weights.shape}; give ({self.size},)")
        found, at = [], 0
        for rows, columns in self.shapes:
            found.append(weights[at : at + rows * columns].reshape(rows, columns))
            at += rows * columns
        return found
