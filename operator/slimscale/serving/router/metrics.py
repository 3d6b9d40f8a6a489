"""The router's metrics. Counts are plain numbers on the way of a request, families when scraped.

Labels are bounded: models, pools and classes of router.json, pods that are there, fixed words.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from slimscale.serving.histogram import Histogram, ModelHistograms

__all__ = ["COUNTS", "GAUGES", "Comparison", "Histogram", "RouterMetrics", "Surroundings"]

GAUGES: Mapping[str, str] = {
    "buffered_requests": "Requests waiting for a pod.",
    "buffered_rows": "Rows of the requests waiting for a pod.",
    "buffered_bytes": "Bytes of the requests waiting for a pod.",
    "body_bytes": "Bytes of all requests in the router.",
    "pods": "Pods that may get requests.",
    "ejected_pods": "Pods left alone for a while.",
    "config_ok": "1: the configuration file is in use.",
    "config_loads": "Configurations taken up.",
    "config_failures": "Configuration files refused.",
    "watch_failures": "Failures of the watch for pods.",
    "mixture_share": "Trust of the mixture in its base policies.",
    "policy_stage": "1: the candidate policy's stage is this one.",
    "policy_ok": "1: the policy file is in use.",
    "policy_loads": "Policy files taken up.",
    "policy_failures": "Policy files refused.",
    "policy_falls": "Times that the candidate lost its share since it last was well for long.",
    "decision_log_decisions": "Decisions that are kept.",
    "decision_log_bytes": "Memory of the decisions that are kept.",
}
"""What surroundings tell, after `slimscale_router_`. Shares and stages are by `name`."""

COUNTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "shield": ("Choices of a learned policy, by what the shield said.", ("verdict",)),
    "candidate_requests": (
        "Requests that ended within their SLO or not, by who had them.", ("arm", "result"),
    ),
}  # fmt: skip
"""Counters that surroundings tell: words and labels. Nothing while there is no candidate."""

LATENCY_BOUNDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
OVERHEAD_BOUNDS = (
    0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.001, 0.0015, 0.003, 0.01, 0.05, 0.2,
)  # fmt: skip
_CODES = frozenset((200, 400, 404, 405, 408, 413, 415, 429, 431, 499, 500, 502, 503, 504))


class Comparison:
    """Sums over the requests that two policies were asked about."""

    __slots__ = ("accuracy", "misses", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.seconds = 0.0
        """Expected delays."""
        self.accuracy = 0.0
        self.misses = 0
        """Expected delay above the SLO."""


_COMPARED: tuple[tuple[str, str, Callable[[Comparison], float]], ...] = (
    ("shadow_compared", "Routes compared, both of which are feasible.", lambda c: c.requests),
    (
        "shadow_expected_seconds",
        "Expected delay of the routes compared, summed.",
        lambda c: c.seconds,
    ),
    (
        "shadow_expected_accuracy",
        "Accuracy of the routes compared, summed.",
        lambda c: c.accuracy,
    ),
    (
        "shadow_expected_misses",
        "Routes compared that are expected to miss their SLO.",
        lambda c: c.misses,
    ),
)


class Surroundings(Protocol):
    """What is read when metrics are scraped."""

    def gauges(self) -> Iterable[tuple[str, dict[str, float]]]:
        """A name of `GAUGES`, and values by label: `""` for a metric without one."""

    def counts(self) -> Iterable[tuple[str, Mapping[tuple[str, ...], float]]]:
        """A name of `COUNTS`, and values by its labels."""

    def pods(self) -> Iterable[tuple[str, int, int]]:
        """Name, requests so far and rows in flight of each pod that is there."""


class RouterMetrics:
    """A prometheus_client collector; register it once."""

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        self.surroundings = surroundings
        self.arrived_requests = 0
        self.arrived_rows = 0
        self.held_requests = 0
        self.by_code: Counter[str] = Counter()
        self.decisions: Counter[tuple[str, str, str, str]] = Counter()
        """By policy, model, pool and reason."""
        self.rejected: Counter[str] = Counter()
        self.rejected_rows: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.ejections: Counter[str] = Counter()
        self.slo: Counter[tuple[str, str]] = Counter()
        """By class and met or missed."""
        self.shadow: Counter[tuple[str, str]] = Counter()
        """By policy and what the shadow would have done differently."""
        self.compared = {"acting": Comparison(), "shadow": Comparison()}
        """Of what was done, and of what the other policy would have done."""
        self.latency = ModelHistograms(
            "slimscale_router_request_seconds",
            "From a request's last byte to its answer.",
            LATENCY_BOUNDS,
        )
        self.overhead = Histogram(OVERHEAD_BOUNDS)

    def answered(self, status: int) -> None:
        self.by_code[str(status) if status in _CODES else "other"] += 1

    def took(self, model: str, seconds: float) -> None:
        self.latency.of(model).observe(seconds)

    def reject(self, reason: str, rows: int) -> None:
        self.rejected[reason] += 1
        self.rejected_rows[reason] += rows

    # ---- for prometheus_client

    def describe(self) -> list[Metric]:
        return []  # asking for the metrics before the pods are known would tell nothing

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._choices()
        yield from self._times()
        if self.surroundings is not None:
            yield from self._around(self.surroundings)

    def _requests(self) -> Iterator[Metric]:
        yield _count("arrivals", "Inference requests that came.", self.arrived_requests)
        yield _count("arrived_rows", "Rows of the requests that came.", self.arrived_rows)
        yield _count("held", "Requests that had to wait for a pod.", self.held_requests)
        yield _counts("requests", "Answers by HTTP status.", ("code",), self.by_code)
        yield _counts("rejected", "Refused early, by reason.", ("reason",), self.rejected)
        yield _counts(
            "rejected_rows", "Rows refused early, by reason.", ("reason",), self.rejected_rows
        )
        yield _counts("retries", "Second tries on another pod.", ("reason",), self.retries)
        yield _counts(
            "slo",
            "Requests by class: answered within the SLO or not.",
            ("class", "result"),
            self.slo,
        )

    def _choices(self) -> Iterator[Metric]:
        labels = ("policy", "model", "pool", "reason")
        yield _counts("decisions", "Routes taken.", labels, self.decisions)
        yield _counts("ejections", "Pods left alone for a while.", ("reason",), self.ejections)
        yield _counts(
            "shadow_decisions",
            "What the shadow policy would have done, against what was done.",
            ("policy", "difference"),
            self.shadow,
        )
        for name, text, sum_of in _COMPARED:
            values = {route: sum_of(sums) for route, sums in self.compared.items()}
            yield _counts(name, text, ("route",), values)

    def _times(self) -> Iterator[Metric]:
        yield from self.latency.collect()
        overhead = HistogramMetricFamily(
            "slimscale_router_overhead_seconds",
            "Time in the router, without the pod's and without waiting for one.",
        )
        overhead.add_metric([], self.overhead.buckets(), self.overhead.total)
        yield overhead

    def _around(self, surroundings: Surroundings) -> Iterator[Metric]:
        for name, values in surroundings.gauges():
            label = [] if "" in values else ["name"]
            gauge = GaugeMetricFamily(f"slimscale_router_{name}", GAUGES[name], labels=label)
            for key, value in values.items():
                gauge.add_metric([key] if label else [], value)
            yield gauge
        for name, counted in surroundings.counts():
            words, labels = COUNTS[name]
            yield _counts(name, words, labels, counted)
        sent = CounterMetricFamily(
            "slimscale_router_pod_requests", "Requests sent to a pod.", labels=["pod"]
        )
        rows = GaugeMetricFamily(
            "slimscale_router_pod_in_flight_rows", "Rows sent and not answered.", labels=["pod"]
        )
        for pod, requests, in_flight in surroundings.pods():
            sent.add_metric([pod], requests)
            rows.add_metric([pod], in_flight)
        yield sent
        yield rows


def _count(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"slimscale_router_{name}", text, value=value)


def _counts(
    name: str,
    text: str,
    labels: tuple[str, ...],
    values: Mapping[Any, float],
) -> Metric:
    family = CounterMetricFamily(f"slimscale_router_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else list(key), value)
    return family
