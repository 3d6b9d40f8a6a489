"""The closed network for many CPU values at once, fast enough for every decision.

Same network and same figures as `closed_network.throughput_curve`. Two things make it quick. The
blocking part and the dispatcher do not depend on the CPU, so their convolution is shared by all
rows with the same dispatch time. And the sums are taken of plain numbers instead of logarithms:
weights are divided by s^i, with s near the geometric mean of 1/T, which keeps G(1..K) within
float64's range for most workloads. All terms are positive, so nothing cancels; the only danger is
a term that is too small for float64. Its largest possible effect is bounded for each row, and a
row whose bound is not negligible is computed with logarithms, as before.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from slimscale.threads.closed_network import (
    NetworkParameters,
    throughput_curve,
)

__all__ = ["throughput_table"]

FloatArray = NDArray[np.float64]

_SMALLEST = float(np.finfo(np.float64).tiny)
_NEGLIGIBLE = 1e-11
"""Relative error of G from lost terms up to which a row is kept."""


def throughput_table(
    parameters: NetworkParameters, rows: Sequence[tuple[float, float]], max_threads: int
) -> FloatArray:
    """Tasks a second, shape (len(rows), max_threads); column k-1 is k threads.

    Each of `rows` is (cpu_servers, dispatch_seconds), which replace those of `parameters`. Equal to
    `throughput_curve` of each row within 1e-9 relative. Raises ValueError as `NetworkParameters`
    and `throughput_curve` do.
    """
    groups: dict[float, list[int]] = {}
    for index, (_, dispatch) in enumerate(rows):
        groups.setdefault(dispatch, []).append(index)
    table = np.empty((len(rows), max(max_threads, 0)))
    for dispatch, members in groups.items():
        # Building the networks of the smallest and the largest CPU checks those between.
        servers = [rows[member][0] for member in members]
        networks = [
            replace(parameters, cpu_servers=c, dispatch_seconds=dispatch)
            for c in {min(servers), max(servers)}
        ]
        table[members] = _curves(networks[0], np.asarray(servers), max_threads)
    return table


def _curves(network: NetworkParameters, servers: FloatArray, count: int) -> FloatArray:
    """Rows that share their dispatch time: shape (len(servers), count)."""
    here = np.arange(1, count + 1, dtype=np.float64)
    index = np.arange(count + 1, dtype=np.float64)
    growth = _growth(network, here)
    # Infinities and NaN are looked for in the result, row by row.
    with np.errstate(all="ignore"):
        log_lock = _log_weights(network.dispatch_seconds * growth)
        scale = _log_scales(network, here, log_lock, np.zeros((1, 1)))[0]
        outside_cpu = _convolve(
            np.exp(_log_weights(network.blocking_seconds / here) - index * scale),
            np.exp(log_lock - index * scale),
        )
        each = network.cpu_seconds / np.minimum(here, servers[:, np.newaxis])
        scales = _log_scales(network, here, log_lock, each)[:, np.newaxis]
        outside = outside_cpu * np.exp(index * (scale - scales))
        cpu = np.exp(_log_weights(each) - index * scales)
        total = np.stack([_convolve(a, b) for a, b in zip(outside, cpu, strict=True)])
        curves = total[:, :-1] / total[:, 1:]
        curves *= np.exp(-scales)
        held = _held(total, outside, cpu)
        slowest = np.maximum(network.cpu_seconds / servers, network.dispatch_seconds)
        # asymptotic_bound of each row; rising where nothing slows the dispatcher: theorems both.
        np.minimum(curves, here / network.cycle_seconds, out=curves)
        np.minimum(curves, 1.0 / slowest[:, np.newaxis], out=curves)
    if growth[-1] == 1.0:
        np.maximum.accumulate(curves, axis=1, out=curves)
    for row in np.flatnonzero(~held):
        curves[row] = throughput_curve(replace(network, cpu_servers=servers[row]), count)
    return np.asarray(curves, dtype=np.float64)


def _held(total: FloatArray, outside: FloatArray, cpu: FloatArray) -> NDArray[np.bool_]:
    """Which rows float64 can hold: what it lost of their terms is nothing beside any G.

    A row's scale is never below the shared one, so moving `outside` to it only shrinks numbers:
    what is lost in each is at most the smallest normal float.
    """
    most = (outside.max(axis=1) + 1.0) * (cpu.max(axis=1) + 1.0)
    lost = 4.0 * cpu.shape[1] * _SMALLEST * most
    # Comparisons with NaN are false.
    held = np.isfinite(total.max(axis=1)) & (lost <= _NEGLIGIBLE * total.min(axis=1))
    return np.asarray(held, dtype=np.bool_)


def _growth(network: NetworkParameters, here: FloatArray) -> FloatArray:
    return np.asarray(
        1.0
        + network.contention_linear * (here - 1.0)
        + network.contention_quadratic * here * (here - 1.0)
        + network.contention_handover * (here > 1.0)
    )


def _log_weights(seconds_each: FloatArray) -> FloatArray:
    """log f(0..K) along the last axis; -inf from 1 on for a station that is never used."""
    weights = np.zeros((*seconds_each.shape[:-1], seconds_each.shape[-1] + 1))
    np.cumsum(np.log(seconds_each), axis=-1, out=weights[..., 1:])
    return weights


def _log_scales(
    network: NetworkParameters, here: FloatArray, log_lock: FloatArray, cpu_each: FloatArray
) -> FloatArray:
    """log s = log G(K)/K, roughly, of each row of `cpu_each`, (M,).

    From the asymptotes, or as if all K were at a dispatcher that crowds.
    """
    slowest = np.maximum(network.dispatch_seconds, cpu_each)
    free = np.log(np.maximum(network.cycle_seconds / here, slowest)).mean(axis=1)
    return np.asarray(np.maximum(free, log_lock[-1] / len(here)))


def _convolve(left: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray(np.convolve(left, right)[: len(left)])
