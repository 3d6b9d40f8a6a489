"""The overload's table, and how the page writes a figure. Pure."""

from collections.abc import Sequence

from slimscale.bench.markdown import table
from slimscale.bench.serving.overload import CALM_SECONDS, CALM_SHARE, OVER, Overload

__all__ = ["OVERLOAD_WORDS", "number", "overload_table"]


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"


OVERLOAD_WORDS = (
    "`slimscale bench serving --overload`. Poisson arrivals at"
    f" {OVER:g} times what the system answers with 64 clients; each request names a deadline. *kept*:"
    " right answers within it, by the client's clock from sending on, of all that were not refused."
    " Memory: resident, MiB, in the second and in the last quarter of the time. *afterwards*: the"
    f" first {CALM_SECONDS:g} s after it, at {CALM_SHARE:.0%} of the capacity."
)


def overload_table(overloads: Sequence[Overload]) -> str:
    return table(
        (
            "system", "seconds", "deadline, ms", "capacity/s", "offered/s", "right/s", "kept",
            "answer p99, ms", "refused", "refusal p50/p99, ms", "memory", "afterwards",
            "generator late p99, ms", "load average",
        ),
        (
            (
                o.system,
                f"{o.seconds:g}",
                f"{o.deadline:g}",
                number(o.capacity_per_second),
                number(o.offered_per_second),
                number(o.right_per_second),
                f"{o.kept_share:.2%}",
                number(o.accepted_p99),
                str(o.refused),
                f"{number(o.refused_p50)}/{number(o.refused_p99)}",
                ", ".join(
                    f"{role} {o.settled_bytes[role] / 2**20:.0f} to {size / 2**20:.0f}"
                    for role, size in o.last_bytes.items()
                ),
                f"{o.calm_right} right, {o.calm_not_right} not; p99 {number(o.calm_p99)} ms",
                number(o.generator_late_p99),
                f"{o.load_average:.1f}",
            )
            for o in overloads
        ),
    )  # fmt: skip
