"""J of one request as a policy can expect it when its batch starts at once."""

from dataclasses import dataclass

import numpy as np
from scipy import special

from slimscale.simulate.bounds.fleet import Fleet, FloatArray, RequestClass

__all__ = ["ObjectiveWeights", "objective_table", "per_request"]


@dataclass(frozen=True, slots=True)
class ObjectiveWeights:
    """J of a request: `accuracy * (acc - reference) - latency * min(t/SLO, cap) - joule * E - miss`."""

    accuracy: float = 12.0
    reference_accuracy: float = 0.703
    latency: float = 1.0
    latency_cap: float = 2.0
    per_joule: float = 0.3
    miss: float = 1.0


def objective_table(fleet: Fleet, of: RequestClass, weights: ObjectiveWeights) -> FloatArray:
    """[D, W, B]: expected J of a request whose batch starts at once; -inf below its accuracy.

    Of the noisy time t = m * lognormal(0, s): `E min(t/SLO, cap)` and `P(t > SLO)` in closed form.
    """
    relative = fleet.median_seconds() / of.slo_seconds
    latency = _capped_mean(relative, weights.latency_cap, fleet.noise)
    late = _above(relative, 1.0, fleet.noise)
    accuracy = np.asarray(fleet.accuracy)[None, :, None]
    gain = weights.accuracy * (accuracy - weights.reference_accuracy)
    gain = gain - weights.latency * latency - weights.miss * late
    gain = gain - weights.per_joule * per_request(fleet.batch_joules())
    return np.where(accuracy >= of.min_accuracy, gain, -np.inf)


def per_request(of_batch: FloatArray) -> FloatArray:
    """[..., B] of batches of 1..B rows, a row of each."""
    rows = np.arange(1, of_batch.shape[-1] + 1, dtype=np.float64)
    return np.asarray(of_batch / rows)


def _above(median: FloatArray, limit: float, noise: float) -> FloatArray:
    """P(median * lognormal(0, noise) > limit)."""
    if noise <= 0.0:
        return np.asarray(median > limit, dtype=np.float64)
    return np.asarray(special.ndtr((np.log(median) - np.log(limit)) / noise))


def _capped_mean(median: FloatArray, cap: float, noise: float) -> FloatArray:
    """E min(median * lognormal(0, noise), cap)."""
    if noise <= 0.0:
        return np.minimum(median, cap)
    distance = (np.log(cap) - np.log(median)) / noise
    below = median * np.exp(noise * noise / 2.0) * special.ndtr(distance - noise)
    return np.asarray(below + cap * special.ndtr(-distance))
