"""Pods, widths and requests for tests of routing; what a test does not name is ordinary."""

from collections.abc import Mapping

from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.policy import PodView, RequestView, Width

__all__ = ["WIDTHS", "pod", "request", "telemetry", "width_telemetry"]

WIDTHS = (
    Width(ratio=0.25, model="m-w025", accuracy=0.70, flops_ratio=0.07),
    Width(ratio=0.5, model="m-w050", accuracy=0.73, flops_ratio=0.27),
    Width(ratio=0.75, model="m-w075", accuracy=0.75, flops_ratio=0.56),
    Width(ratio=1.0, model="m-w100", accuracy=0.76, flops_ratio=1.0),
)


def width_telemetry(
    width: Width,
    *,
    base: float | None = 0.002,
    row: float | None = 0.004,
    instances: int = 1,
    loading: bool = False,
    load_seconds: float | None = 1.0,
    queued_rows: int = 0,
    running_rows: int = 0,
) -> WidthTelemetry:
    """`row` is of the widest width; narrower ones take their share of the FLOPs."""
    return WidthTelemetry(
        model=width.model,
        instances=instances,
        loading=loading,
        queued_rows=queued_rows,
        running_rows=running_rows,
        base_seconds=base,
        row_seconds=None if row is None else row * width.flops_ratio,
        load_seconds=load_seconds,
    )


def telemetry(
    *,
    backlog: float = 0.0,
    draining: bool = False,
    base: float | None = 0.002,
    row: float | None = 0.004,
    cold: tuple[str, ...] = (),
    load_seconds: float | None = 1.0,
) -> PodTelemetry:
    return PodTelemetry(
        widths=tuple(
            width_telemetry(
                width,
                base=base,
                row=row,
                instances=0 if width.model in cold else 1,
                load_seconds=load_seconds,
            )
            for width in WIDTHS
        ),
        backlog_seconds=backlog,
        draining=draining,
    )


def pod(
    name: str,
    seen: PodTelemetry | None = None,
    *,
    pool: str = "cpu",
    age: float = 0.0,
    in_flight: Mapping[str, int] | None = None,
    ejected: bool = False,
    probing: bool = False,
    refusing: bool = False,
    overdue: float = 0.0,
    power_watts: float | None = None,
) -> PodView:
    return PodView(
        name=name,
        pool=pool,
        telemetry=seen,
        telemetry_age_seconds=age,
        in_flight_rows=in_flight or {},
        ejected=ejected,
        probing=probing,
        refusing=refusing,
        overdue_seconds=overdue,
        power_watts=power_watts,
    )


def request(
    *,
    rows: int = 1,
    deadline: float = 10.0,
    slo: float = 0.25,
    min_accuracy: float = 0.0,
    tried: frozenset[str] = frozenset(),
) -> RequestView:
    return RequestView(
        rows=rows,
        deadline_seconds=deadline,
        slo_seconds=slo,
        min_accuracy=min_accuracy,
        tried_pods=tried,
    )
