"""How long the work that a pod has taken will last: for early refusals, Retry-After, telemetry."""

from collections.abc import Iterable

from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.queues import BatchQueues
from slimscale.serving.sidecar.pending import ModelState, Pending

__all__ = ["backlog_seconds", "finish_seconds", "telemetry_of"]

Queues = BatchQueues[Pending]


def backlog_seconds(
    models: Iterable[ModelState], queues: Queues, *, running_seconds: float, slots: int
) -> float:
    """Until a new request's batch could start, as far as is measured."""
    if not queues.live:
        return running_seconds
    full = queues.limits.max_rows
    queued = sum(
        _queue_seconds(model, queues.rows_of(model.name), full, safe=False) or 0.0
        for model in models
        if queues.rows_of(model.name)
    )
    return running_seconds + queued / slots


def finish_seconds(
    model: ModelState,
    models: Iterable[ModelState],
    queues: Queues,
    *,
    rows: int,
    deadline: float,
    running_seconds: float,
    slots: int,
) -> float | None:
    """Until the answer to a new request of `rows`, with room for error.

    None where a model in front of it, or its own, has not been measured: nothing is refused on a guess.
    """
    if not queues.live and model.instances:
        alone = model.times.safe_seconds(rows)
        return None if alone is None else running_seconds + alone
    full = queues.limits.max_rows
    total = 0.0
    own = 0.0
    for other in models:
        before = queues.rows_before(other.name, deadline)
        mine = rows if other is model else 0
        if not before + mine:
            continue
        seconds = _queue_seconds(other, before + mine, full, safe=True)
        if seconds is None:
            return None
        if other is model:
            # The batch it is part of runs to its end on one slot, however many there are.
            own = other.times.safe_seconds(min(full, before + mine)) or 0.0
            seconds = max(seconds - own, 0.0)
        total += seconds
    return running_seconds + total / slots + own


def _queue_seconds(model: ModelState, rows: int, full: int, *, safe: bool) -> float | None:
    """Of so many rows in full batches, one after another, with the load of a cold model."""
    predict = model.times.safe_seconds if safe else model.times.seconds
    batches, rest = divmod(rows, full)
    whole, last = predict(full), predict(rest)
    if whole is None or last is None:
        return None
    load = 0.0
    if not model.instances:
        if model.load_seconds is None:
            return None
        load = model.load_seconds
    return load + batches * whole + (last if rest else 0.0)


def telemetry_of(
    models: Iterable[ModelState],
    queues: Queues,
    *,
    backlog: float,
    draining: bool,
    device: PodTelemetry | None,
) -> PodTelemetry:
    """`device` holds what the model server last said of its device; None: unknown."""
    told = [(model, *model.told_times()) for model in models]
    return PodTelemetry(
        widths=tuple(
            WidthTelemetry(
                model=model.name,
                instances=model.instances,
                loading=model.loading,
                queued_rows=queues.rows_of(model.name),
                running_rows=model.running_rows,
                base_seconds=base,
                row_seconds=row,
                load_seconds=model.load_seconds,
            )
            for model, base, row in told
        ),
        backlog_seconds=backlog,
        draining=draining,
        utilisation=device.utilisation if device else None,
        memory_free_bytes=device.memory_free_bytes if device else None,
        memory_total_bytes=device.memory_total_bytes if device else None,
        power_watts=device.power_watts if device else None,
        device=device.device if device else None,
        device_lost=device.device_lost if device else False,
    )
