"""What the model server counts, and the metrics of SimWorkload's contract on the same page."""

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from slimscale.devices.reading import DeviceReading
from slimscale.inpod.cgroup import read_cgroup
from slimscale.inpod.exposition import KIND_AND_HELP, PREFIX, process_start_seconds
from slimscale.inpod.recorder import BUCKET_BOUNDS_SECONDS, HistogramFigures, Recorder

__all__ = ["ModelServerMetrics"]

_SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

_DEVICE_FIGURES: dict[str, tuple[str, Callable[[DeviceReading], float | None]]] = {
    "utilisation": ("Share of the device in use, 0 to 1.", lambda r: r.utilisation),
    "memory_total_bytes": ("Memory of the device.", lambda r: r.memory_total_bytes),
    "memory_free_bytes": ("Free memory of the device.", lambda r: r.memory_free_bytes),
    "power_watts": ("Power that the device takes.", lambda r: r.power_watts),
    "lost": ("1 while the device can't be reached.", lambda r: float(r.lost)),
}


class ModelServerMetrics:
    """Metrics of one process, in a registry of their own. `readings` gives the devices as last read."""

    def __init__(
        self, recorder: Recorder, readings: Callable[[], tuple[DeviceReading, ...]]
    ) -> None:
        self.recorder = recorder
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "slimscale_modelserver_requests", "Inference requests answered, by status.",
            ("model", "code"), registry=registry,
        )  # fmt: skip
        self.compute_seconds = Histogram(
            "slimscale_modelserver_compute_seconds", "Time of a batch in onnxruntime.",
            ("model",), buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.batch_rows = Histogram(
            "slimscale_modelserver_batch_rows", "Rows of the batches that ran.",
            ("model",), buckets=_ROWS, registry=registry,
        )  # fmt: skip
        self.nonfinite_rows = Counter(
            "slimscale_modelserver_nonfinite_rows", "Rows answered with NaN or infinity.",
            ("model",), registry=registry,
        )  # fmt: skip
        self.instances = Gauge(
            "slimscale_modelserver_instances", "Instances loaded and warm.",
            ("model",), registry=registry,
        )  # fmt: skip
        self.loads = Counter(
            "slimscale_modelserver_loads", "Loads of a model, by result.",
            ("model", "result"), registry=registry,
        )  # fmt: skip
        self.load_seconds = Gauge(
            "slimscale_modelserver_load_seconds", "How long the last load took, warming included.",
            ("model",), registry=registry,
        )  # fmt: skip
        self.rebuilds = Counter(
            "slimscale_modelserver_thread_changes", "Changes of the thread count, by result.",
            ("result",), registry=registry,
        )  # fmt: skip
        self.config_failures = Gauge(
            "slimscale_modelserver_config_bad", "1 while the configuration file can't be used.",
            registry=registry,
        )  # fmt: skip
        self._of_model: dict[str, _OfModel] = {}
        registry.register(_Contract(recorder))
        recorder.costs_are_recorded(cpu=True, runqueue=False)
        registry.register(_Devices(readings))

    def used_cpu(self, seconds: float) -> None:
        """CPU that batches took; called from one thread alone."""
        self.recorder.accumulator().cpu_seconds += seconds

    def ran(self, model: str, *, rows: int, seconds: float, threads: int) -> None:
        """A batch has run and is answered. For the contract a row is the task, so that rows a second are what grows.

        A batch keeps all threads of its session busy: a row takes the time of one thread for
        seconds * threads / rows.
        """
        known = self._of_model.get(model)
        if known is None:
            known = self._of_model[model] = _OfModel(self, model)
        known.answered.inc()
        known.compute_seconds.observe(seconds)
        known.batch_rows.observe(rows)
        self.recorder.accumulator().task(seconds * threads / rows, rows)


class _OfModel:
    """A model's metrics, looked up once: a lookup by label costs more than the count itself."""

    __slots__ = ("answered", "batch_rows", "compute_seconds")

    def __init__(self, metrics: ModelServerMetrics, model: str) -> None:
        self.answered = metrics.requests.labels(model, "200")
        self.compute_seconds = metrics.compute_seconds.labels(model)
        self.batch_rows = metrics.batch_rows.labels(model)


class _Contract(Collector):
    """docs/contract.md, section 3; what nobody knows is left out."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        figures = self._recorder.figures()
        cgroup = read_cgroup()
        yield _histogram("task_seconds", figures.task)
        yield _histogram("dispatch_seconds", figures.dispatch)
        for name, value in (
            ("tasks_total", figures.task.count),
            ("tasks_outstanding", figures.outstanding),
            ("threads_applied", figures.threads_applied),
            ("task_cpu_seconds_total", figures.cpu_seconds),
            ("cpu_quota_cores", cgroup.quota_cores),
            ("cpu_usage_seconds_total", cgroup.usage_seconds),
            ("cpu_periods_total", cgroup.periods),
            ("cpu_throttled_periods_total", cgroup.throttled_periods),
            ("cpu_throttled_seconds_total", cgroup.throttled_seconds),
            ("process_start_time_seconds", process_start_seconds()),
        ):
            if value is None:
                continue
            kind, text = KIND_AND_HELP[name]
            family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            yield family(f"{PREFIX}_{name}", text, value=value)


class _Devices(Collector):
    """The devices as last read. A figure that is unknown now is not on the page, not 0."""

    def __init__(self, readings: Callable[[], tuple[DeviceReading, ...]]) -> None:
        self._readings = readings

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        readings = self._readings()
        for name, (text, get) in _DEVICE_FIGURES.items():
            family = GaugeMetricFamily(
                f"{PREFIX}_device_{name}",
                f"{text} Of the whole device, whoever uses it: never add it up over pods.",
                labels=("device", "kind"),
            )
            for reading in readings:
                value = get(reading)
                if value is not None:
                    family.add_metric((reading.device, reading.kind), value)
            if family.samples:
                yield family


def _histogram(name: str, figures: HistogramFigures) -> HistogramMetricFamily:
    bounds = [repr(bound) for bound in BUCKET_BOUNDS_SECONDS] + ["+Inf"]
    family = HistogramMetricFamily(f"{PREFIX}_{name}", KIND_AND_HELP[name][1])
    family.add_metric(
        (),
        buckets=list(zip(bounds, map(float, accumulate(figures.counts)), strict=True)),
        sum_value=figures.sum_seconds,
    )
    return family
