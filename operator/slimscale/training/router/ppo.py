"""Proximal policy optimisation of the gate and the residual, with its gradient written by hand.

The clipped surrogate (Schulman et al. 2017, arXiv 1707.06347) over the masked softmax of all actions;
masked ones have probability 0 in the update as in the roll-out. The softmax is over scores times the
sharpness, so that an action's log-probability has the gradient

    d log pi(a) / d score(b) = sharpness * ([a = b] - pi(b))

and scores are linear in the gate's coefficients. A batch stops being used when the mean KL divergence
from the policy that made it passes its target.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slimscale.routing.learned.observation import FloatArray
from slimscale.routing.learned.weights import PolicyWeights, Residual
from slimscale.simulate.routing.compiled import compiled
from slimscale.simulate.routing.learned_policy import (
    CELL_COUNT,
    HOLD,
    REGIME_COUNT,
    score_actions,
)
from slimscale.training.router.adam import Adam
from slimscale.training.router.rollout import Rollout, probabilities, residual_arrays

__all__ = ["PpoSettings", "UpdateReport", "gradient", "improve", "pack", "unpack"]


@dataclass(frozen=True, slots=True)
class PpoSettings:
    clip: float = 0.2
    epochs: int = 4
    minibatch: int = 8192
    rate: float = 0.003
    target_kl: float = 0.02
    entropy: float = 0.003
    """Weight of the entropy in units of the normalised advantage; the caller anneals it."""
    leash: float = 0.0
    """Weight of KL(policy before || policy): how far fine-tuning may go."""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    kl: float
    entropy: float
    clipped: float
    """Share of the decisions whose ratio was cut off."""
    epochs: int


def pack(weights: PolicyWeights) -> FloatArray:
    """All parameters as one vector: start, slopes, hidden, bias, out."""
    hidden, bias, out = residual_arrays(weights)
    return np.concatenate([weights.start, weights.slopes.ravel(), hidden.ravel(), bias, out])


def unpack(vector: FloatArray, like: PolicyWeights) -> PolicyWeights:
    """The inverse of `pack`, for weights of the same shapes as `like`."""
    units = 0 if like.residual is None else len(like.residual.out)
    sizes = [CELL_COUNT, CELL_COUNT * REGIME_COUNT, units * (CELL_COUNT + REGIME_COUNT), units]
    start, slopes, hidden, bias, out = np.split(vector, np.cumsum(sizes))
    residual = None
    if units:
        residual = Residual(hidden.reshape(units, -1).copy(), bias.copy(), out.copy())
    return replace(
        like,
        start=start.copy(),
        slopes=slopes.reshape(CELL_COUNT, REGIME_COUNT).copy(),
        residual=residual,
    )


@compiled
def _gradient(  # noqa: C901, PLR0912, PLR0915, PLR0917 - one pass; compiled code is called by position
    phi: Any, allowed: Any, regime: Any, action: Any, old_log: Any, advantage: Any, order: Any,
    start: Any, slopes: Any, hidden: Any, bias: Any, out: Any,
    sharpness: float, clip: float, entropy_weight: float, leash: float, reference: Any,
    d_start: Any, d_slopes: Any, d_hidden: Any, d_bias: Any, d_out: Any,
) -> tuple[float, float, float, float]:  # fmt: skip
    """Adds the gradient of the mean objective over `order` to the d_ arrays.

    (mean objective, mean KL estimate, mean entropy, share clipped).
    """
    pods, widths = phi.shape[1], phi.shape[2]
    cells, count = pods * widths, out.shape[0]
    coefficients, d_coefficients = np.empty(CELL_COUNT), np.empty(CELL_COUNT)
    scores, chance = np.empty(2 * cells), np.empty(2 * cells)
    units = np.zeros((pods, widths, count))
    objective, divergence, entropies, cut = 0.0, 0.0, 0.0, 0.0
    scale = 1.0 / len(order)
    for place in range(len(order)):
        n = order[place]
        for k in range(CELL_COUNT):
            total = start[k]
            for j in range(REGIME_COUNT):
                total += slopes[k, j] * regime[n, j]
            coefficients[k] = total
        score_actions(phi[n], allowed[n], regime[n], coefficients, hidden, bias, out, units, scores)
        top = scores.max()
        total = 0.0
        for b in range(2 * cells):
            chance[b] = math.exp((scores[b] - top) * sharpness)
            total += chance[b]
        entropy = 0.0
        for b in range(2 * cells):
            chance[b] /= total
            if chance[b] > 1e-12:
                entropy -= chance[b] * math.log(chance[b])
        a = action[n]
        log = (scores[a] - top) * sharpness - math.log(total)
        ratio = math.exp(min(log - old_log[n], 20.0))
        gain = advantage[n]
        inside = (gain >= 0.0 and ratio <= 1.0 + clip) or (gain < 0.0 and ratio >= 1.0 - clip)
        limited = min(max(ratio, 1.0 - clip), 1.0 + clip)
        objective += scale * (min(ratio * gain, limited * gain) + entropy_weight * entropy)
        if leash > 0.0:
            for b in range(2 * cells):
                if reference[n, b] > 0.0:
                    expected = (scores[b] - top) * sharpness - math.log(total)
                    objective += scale * leash * reference[n, b] * expected
        divergence += scale * (ratio - 1.0 - (log - old_log[n]))
        entropies += scale * entropy
        cut += scale if not inside else 0.0
        pull = ratio * gain if inside else 0.0
        for k in range(CELL_COUNT):
            d_coefficients[k] = 0.0
        for pod in range(pods):
            for width in range(widths):
                cell = pod * widths + width
                if not allowed[n, cell]:
                    continue
                d_cell = 0.0
                for option in range(2):
                    b = cell + option * cells
                    if not allowed[n, b]:
                        continue
                    d = pull * ((1.0 if a == b else 0.0) - chance[b])
                    if chance[b] > 1e-12:
                        d -= entropy_weight * chance[b] * (math.log(chance[b]) + entropy)
                    if leash > 0.0:
                        d += leash * (reference[n, b] - chance[b])
                    d *= sharpness * scale
                    d_cell += d
                    if option == 1:
                        d_coefficients[HOLD] += d * phi[n, pod, width, HOLD]
                for k in range(HOLD):
                    d_coefficients[k] += d_cell * phi[n, pod, width, k]
                for h in range(count):
                    unit = units[pod, width, h]
                    d_out[h] += d_cell * unit
                    back = d_cell * out[h] * (1.0 - unit * unit)
                    d_bias[h] += back
                    for k in range(CELL_COUNT):
                        d_hidden[h, k] += back * phi[n, pod, width, k]
                    for j in range(REGIME_COUNT):
                        d_hidden[h, CELL_COUNT + j] += back * regime[n, j]
        for k in range(CELL_COUNT):
            d_start[k] += d_coefficients[k]
            for j in range(REGIME_COUNT):
                d_slopes[k, j] += d_coefficients[k] * regime[n, j]
    return objective, divergence, entropies, cut


def gradient(
    weights: PolicyWeights,
    rollout: Rollout,
    advantage: FloatArray,
    order: np.ndarray,
    settings: PpoSettings,
    *,
    reference: FloatArray | None = None,
) -> tuple[FloatArray, float, float, float, float]:
    """(gradient as of `pack`, objective, KL, entropy, share clipped), means over `order`.

    `reference` (N, 2 P W): probabilities of the policy that the leash holds to; with a leash alone.
    """
    hidden, bias, out = residual_arrays(weights)
    d_start, d_slopes = np.zeros(CELL_COUNT), np.zeros((CELL_COUNT, REGIME_COUNT))
    d_hidden, d_bias, d_out = np.zeros_like(hidden), np.zeros_like(bias), np.zeros_like(out)
    held_to = np.zeros((0, 0)) if reference is None else reference
    leash = 0.0 if reference is None else settings.leash
    objective, divergence, entropy, cut = _gradient(
        rollout.phi, rollout.allowed, rollout.regime, rollout.action, rollout.log_probability,
        advantage, order, weights.start, weights.slopes, hidden, bias, out, weights.sharpness,
        settings.clip, settings.entropy, leash, held_to,
        d_start, d_slopes, d_hidden, d_bias, d_out,
    )  # fmt: skip
    found = np.concatenate([d_start, d_slopes.ravel(), d_hidden.ravel(), d_bias, d_out])
    return found, objective, divergence, entropy, cut


def improve(
    weights: PolicyWeights,
    batch: Sequence[tuple[Rollout, FloatArray]],
    settings: PpoSettings,
    *,
    adam: Adam,
    scale: FloatArray,
    rng: np.random.Generator,
) -> tuple[PolicyWeights, UpdateReport]:
    """Some epochs over a batch of roll-outs with their advantages, stopped by the KL target.

    `scale`: of each parameter as of `pack`, by which Adam's steps are multiplied.
    """
    vector = pack(weights)
    held_to = [
        probabilities(weights, one.phi, one.allowed, one.regime) if settings.leash > 0.0 else None
        for one, _ in batch
    ]
    report = UpdateReport(0.0, 0.0, 0.0, 0)
    for epoch in range(settings.epochs):
        divergences, entropies, cuts, counts = [], [], [], []
        pieces = _pieces([len(one.action) for one, _ in batch], settings.minibatch, rng)
        for piece in pieces:
            total = np.zeros_like(vector)
            rows = sum(len(order) for _, order in piece)
            current = unpack(vector, weights)
            for index, order in piece:
                rollout, advantage = batch[index]
                found, _, kl, entropy, cut = gradient(
                    current, rollout, advantage, order, settings, reference=held_to[index]
                )
                total += found * (len(order) / rows)
                divergences.append(kl)
                entropies.append(entropy)
                cuts.append(cut)
                counts.append(len(order))
            so_far = float(np.average(divergences[-len(piece) :], weights=counts[-len(piece) :]))
            if so_far > 2.0 * settings.target_kl:  # this step would begin too far away
                break
            vector = vector + scale * adam.step(total, settings.rate)
        report = UpdateReport(
            float(np.average(divergences, weights=counts)),
            float(np.average(entropies, weights=counts)),
            float(np.average(cuts, weights=counts)),
            epoch + 1,
        )
        if report.kl > settings.target_kl:
            break
    return unpack(vector, weights), report


def _pieces(
    sizes: Sequence[int], rows: int, rng: np.random.Generator
) -> list[list[tuple[int, np.ndarray]]]:
    """The batch in random minibatches of about `rows`; each is a list of (roll-out, its rows)."""
    count = max(1, round(sum(sizes) / rows))
    orders = [np.array_split(rng.permutation(size), count) for size in sizes]
    return [
        [(index, order[piece]) for index, order in enumerate(orders) if len(order[piece])]
        for piece in range(count)
    ]
