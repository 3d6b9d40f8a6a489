"""Parameters learned over windows: a scalar Kalman filter each, and a test for what does not fit.

What one window says of a task is noisy, so within one load and one thread count the logarithms of
the parameters are filtered (Kalman 1960; the state is constant but for a small drift). A window
whose innovation lies beyond three standard deviations is not learned from: a pause, a burst of
steal or a mixed window would otherwise move the target. A second one in a row is no accident, and the filter starts afresh from the last one.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from slimscale.domain.decision import DecisionStep
from slimscale.threads.estimate import Estimate
from slimscale.threads.memo import Belief, Regime
from slimscale.threads.window import WorkloadWindow

__all__ = ["learn"]

GATE_SIGMAS = 3.0
MOST_REJECTED = 2
WINDOW_SIGMA = 0.05
"""Of a window's mean beyond the sampling of its tasks: machines are shared."""
OVERLAP = 3.0
"""Windows overlap, so each brings less that is new than its variance says."""
DRIFT_VARIANCE = 4e-4
_NAMES = ("rate", "cpu", "blocking", "dispatch", "whole")


def learn(
    estimate: Estimate, window: WorkloadWindow, regime: Regime
) -> tuple[Estimate, Regime, DecisionStep | None]:
    """The estimate by all windows of this load so far, the regime that remembers it, and a word
    when a window was refused. Only windows under saturated demand teach anything.
    """
    if not window.saturated or window.tasks <= 0:
        return estimate, regime, None
    cores = round(estimate.parameters.cpu_servers, 3)
    same = (regime.belief_threads, regime.belief_cores) == (window.threads, cores)
    known = dict(regime.beliefs) if same else {}
    variance = OVERLAP * (WINDOW_SIGMA**2 + 1.0 / window.tasks)
    seen = {name: value for name, value in _values(estimate).items() if value > 0}
    refused = _refused(seen, known, variance)
    if refused and max(known[name].rejected for name in refused) + 1 < MOST_REJECTED:
        beliefs = {
            name: replace(b, rejected=b.rejected + 1 if name in refused else b.rejected)
            for name, b in known.items()
        }
        regime = replace(regime, beliefs=beliefs)
        words = (
            f"{_words(refused[0])} is further from what was learned than chance explains: this"
            " window teaches nothing"
        )
        step = DecisionStep("Learn", "Rejected", words, constrained=True)
        return _with(estimate, {n: b.mean for n, b in beliefs.items()}), regime, step
    if refused:
        known = {}
    beliefs = {name: _update(known.get(name), math.log(v), variance) for name, v in seen.items()}
    regime = replace(regime, beliefs=beliefs, belief_threads=window.threads, belief_cores=cores)
    return _with(estimate, {n: b.mean for n, b in beliefs.items()}), regime, None


def _values(estimate: Estimate) -> dict[str, float]:
    p = estimate.parameters
    values = (
        estimate.tasks_per_second,
        p.cpu_seconds,
        p.blocking_seconds,
        p.dispatch_seconds,
        estimate.cpu_seconds_a_task,
    )
    return dict(zip(_NAMES, values, strict=True))


def _refused(
    seen: Mapping[str, float], known: Mapping[str, Belief], variance: float
) -> tuple[str, ...]:
    """Names whose innovation fails the gate. The wait is a difference and judged more mildly."""
    found = []
    for name in ("rate", "cpu", "whole"):
        belief = known.get(name)
        if belief is None or name not in seen:
            continue
        innovation = math.log(seen[name]) - belief.mean
        if abs(innovation) > GATE_SIGMAS * math.sqrt(belief.variance + variance):
            found.append(name)
    return tuple(found)


def _update(belief: Belief | None, value: float, variance: float) -> Belief:
    if belief is None:
        return Belief(value, variance)
    prior = belief.variance + DRIFT_VARIANCE
    gain = prior / (prior + variance)
    return Belief(belief.mean + gain * (value - belief.mean), (1.0 - gain) * prior)


def _with(estimate: Estimate, logs: Mapping[str, float]) -> Estimate:
    value = {**_values(estimate), **{name: math.exp(log) for name, log in logs.items()}}
    alone = estimate.alone_per_second
    return replace(
        estimate,
        tasks_per_second=value["rate"],
        alone_per_second=value["rate"] if alone is not None else None,
        cpu_seconds_a_task=value["whole"],
        parameters=replace(
            estimate.parameters,
            cpu_seconds=value["cpu"],
            blocking_seconds=value["blocking"],
            dispatch_seconds=value["dispatch"],
        ),
    )


def _words(name: str) -> str:
    return {
        "rate": "the throughput",
        "cpu": "the CPU of a task",
        "whole": "the container's CPU a task",
    }[name]
