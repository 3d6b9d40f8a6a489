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
    asymptotic_bound,
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
    networks = [
        replace(parameters, cpu_servers=servers, dispatch_seconds=dispatch)
        for servers, dispatch in rows
    ]
    table = np.empty((len(networks), max(max_threads, 0)))
    groups: dict[float, list[int]] = {}
    for index, network in enumerate(networks):
        groups.setdefault(network.dispatch_seconds, []).append(index)
    for members in groups.values():
        _fill(table, networks, members, max_threads)
    return table


def _fill(
    table: FloatArray, networks: list[NetworkParameters], members: list[int], count: int
) -> None:
    """Rows that share their dispatch time."""
    first = networks[members[0]]
    here = np.arange(1, count + 1, dtype=np.float64)
    index = np.arange(count + 1, dtype=np.float64)
    growth = _growth(first, here)
    rising = bool((growth == 1.0).all())
    # Infinities and NaN are looked for in the result, row by row.
    with np.errstate(all="ignore"):
        log_lock = _log_weights(first.dispatch_seconds * growth)
        scale = _log_scale(first, here, log_lock, cpu_each=0.0)
        outside_cpu = _convolve(
            np.exp(_log_weights(first.blocking_seconds / here) - index * scale),
            np.exp(log_lock - index * scale),
        )
        for member in members:
            network = networks[member]
            each = network.cpu_seconds / np.minimum(here, network.cpu_servers)
            own_scale = _log_scale(network, here, log_lock, cpu_each=each)
            outside = outside_cpu * np.exp(index * (scale - own_scale))
            curve = _curve(outside, np.exp(_log_weights(each) - index * own_scale))
            if curve is None:
                table[member] = throughput_curve(network, count)
                continue
            curve *= np.exp(-own_scale)
            np.minimum(curve, asymptotic_bound(network, count), out=curve)
            table[member] = np.maximum.accumulate(curve) if rising else curve


def _curve(outside: FloatArray, cpu: FloatArray) -> FloatArray | None:
    """G(k-1)/G(k) for k = 1..K; None where float64 cannot hold the terms.

    A row's scale is never below the shared one, so moving `outside` to it only shrinks numbers:
    what is lost in each is at most the smallest normal float.
    """
    total = _convolve(outside, cpu)
    smallest, largest = float(total.min()), float(total.max())
    lost = 4.0 * len(cpu) * _SMALLEST * (float(outside.max()) + 1.0) * (float(cpu.max()) + 1.0)
    if not (np.isfinite(largest) and lost <= _NEGLIGIBLE * smallest):  # NaN is kept by neither
        return None
    return np.asarray(total[:-1] / total[1:], dtype=np.float64)


def _growth(network: NetworkParameters, here: FloatArray) -> FloatArray:
    return np.asarray(
        1.0
        + network.contention_linear * (here - 1.0)
        + network.contention_quadratic * here * (here - 1.0)
        + network.contention_handover * (here > 1.0)
    )


def _log_weights(seconds_each: FloatArray) -> FloatArray:
    """log f(0..K): sums of the logarithms; -inf from 1 on for a station that is never used."""
    weights = np.empty(len(seconds_each) + 1)
    weights[0] = 0.0
    np.cumsum(np.log(seconds_each), out=weights[1:])
    return weights


def _log_scale(
    network: NetworkParameters,
    here: FloatArray,
    log_lock: FloatArray,
    *,
    cpu_each: FloatArray | float,
) -> float:
    """log s = log G(K)/K, roughly: from the asymptotes, or all K at a dispatcher that crowds."""
    slowest = np.maximum(network.dispatch_seconds, cpu_each)
    free = float(np.log(np.maximum(network.cycle_seconds / here, slowest)).mean())
    return max(free, float(log_lock[-1]) / len(here))


def _convolve(left: FloatArray, right: FloatArray) -> FloatArray:
    return np.asarray(np.convolve(left, right)[: len(left)])
