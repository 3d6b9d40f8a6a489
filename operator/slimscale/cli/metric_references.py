"""The reference of all metrics, in the words of the code that serves them."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from slimscale.act.inference_metrics import InferenceMetrics
from slimscale.act.metrics import OperatorMetrics
from slimscale.cli.references import NOTICE, cell
from slimscale.devices.reading import DeviceReading
from slimscale.domain.contract import MetricName
from slimscale.inpod.exposition import IGNORED_HELP, IGNORED_NAME, METRIC_NAMES, PREFIX
from slimscale.inpod.recorder import Recorder
from slimscale.serving.modelserver.metrics import ModelServerMetrics
from slimscale.serving.router.metrics import COUNTS, GAUGES, RouterMetrics
from slimscale.serving.sidecar.metrics import SidecarMetrics

__all__ = ["metrics_reference"]

Row = tuple[str, str, str, str]
"""Name as it is served, type, labels, words."""


def metrics_reference() -> str:
    """What operator and data plane serve, and what the contract asks of pods."""
    pods = ["| metric | what it is |", "|---|---|"]
    pods += [f"| `{PREFIX}_{name}` | {cell(words)} |" for name, words in _contract_metrics()]
    pods += [
        f"| `{PREFIX}_{IGNORED_NAME}` | Counter by `reason`, of `slimscale.inpod` alone: "
        f"{cell(IGNORED_HELP)} |"
    ]
    parts = [
        "# Metrics",
        NOTICE,
        "Where a value is unknown there is no series; it is never 0 instead.",
        "## Served by the operator",
        _table(_operator()),
        "## Served by the pods of a simulation",
        "`slimscale` is the prefix unless `spec.metrics.prometheus.metricPrefix` says otherwise.",
        "\n".join(pods),
        "## Served by the router of a SlimInference",
        "Port 8081, `/metrics`. Labels have few values: models, pools and classes of the custom"
        " resource, pods that are there, fixed words.",
        _table(_rows(_register(RouterMetrics(_Around())), {})),
        "## Served by the batching sidecar",
        "Port 8081, `/metrics`.",
        _table(_sidecar()),
        "## Served by the model server",
        "Port 9464, `/metrics`: these, and those of a simulation's pods above, with a row of a"
        " batch as the task ([ADR 0017](../adr/0017-threads-of-model-servers.md)).",
        _table(_model_server()),
    ]
    return "\n\n".join(parts) + "\n"


def _table(rows: Iterable[Row]) -> str:
    lines = ["| metric | type | labels | what it is |", "|---|---|---|---|"]
    lines += [
        f"| `{name}` | {kind} | {labels} | {cell(words)} |" for name, kind, labels, words in rows
    ]
    return "\n".join(lines)


def _operator() -> Iterator[Row]:
    registry = CollectorRegistry()
    kept = (OperatorMetrics(registry), InferenceMetrics(registry))
    return _rows(registry, {name: value for part in kept for name, value in _labels(part).items()})


def _sidecar() -> Iterator[Row]:
    metrics = SidecarMetrics()
    return _rows(metrics.registry, _labels(metrics))


def _model_server() -> Iterator[Row]:
    """Without the contract, which has a table of its own."""
    known = DeviceReading(
        "GPU-0", "gpu", utilisation=0.0, memory_total_bytes=0, memory_free_bytes=0, power_watts=0.0
    )
    metrics = ModelServerMetrics(Recorder(), lambda: (known,))
    contract = {f"{PREFIX}_{name}" for name in METRIC_NAMES}
    for row in _rows(metrics.registry, _labels(metrics)):
        if row[0] not in contract:
            yield row


class _Around:
    """A router's surroundings that have everything there is to tell."""

    def gauges(self) -> Iterator[tuple[str, dict[str, float]]]:
        for name in GAUGES:
            yield name, {"any" if name in {"mixture_share", "policy_stage"} else "": 0.0}

    def counts(self) -> Iterator[tuple[str, dict[tuple[str, ...], float]]]:
        for name in COUNTS:
            yield name, {}

    def pods(self) -> Iterator[tuple[str, int, int]]:
        return iter(())


def _register(metrics: RouterMetrics) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(metrics)
    return registry


def _labels(holder: object) -> dict[str, tuple[str, ...]]:
    """Of the metrics that an object has as its attributes, by name."""
    return {
        metric._name: tuple(metric._labelnames)
        for metric in vars(holder).values()
        if isinstance(metric, MetricWrapperBase)
    }


def _rows(registry: CollectorRegistry, labels: dict[str, tuple[str, ...]]) -> Iterator[Row]:
    families: list[Any] = sorted(registry.collect(), key=lambda family: family.name)
    for family in families:
        # A family that a collector of ours makes knows its labels; prometheus_client's own do not.
        names = labels.get(family.name, getattr(family, "_labelnames", ()))
        suffix = "_total" if family.type == "counter" else ""
        words = ", ".join(f"`{label}`" for label in names)
        yield family.name + suffix, family.type, words, family.documentation


def _contract_metrics() -> Iterable[tuple[str, str]]:
    """Attributes of MetricName, each with the docstring below it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(MetricName)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    for index, node in enumerate(body):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)):
            continue
        words = ""
        after = body[index + 1] if index + 1 < len(body) else None
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            words = inspect.cleandoc(str(after.value.value))
        yield str(node.value.value), words
