"""`slimscale explain simworkload NAME`: the live status, in the order in which it was decided."""

import asyncio
import copy
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from slimscale.api.names import API_VERSION, SIMWORKLOAD_PLURAL
from slimscale.api.simworkload import ResourceChoice, SimWorkload, SimWorkloadStatus
from slimscale.cli.plots import curve_png, curve_text
from slimscale.exceptions import SlimError
from slimscale.kubeapi import paths

__all__ = ["explain", "render"]

_MOST_UNKNOWN = 64
_CHOSEN_BY = {
    "Predict": "the model (first tier)",
    "CpuAware": "a step towards idle or crowded CPUs (second tier)",
    "Search": "a step in the neighbourhood (third tier)",
    "Revert": "going back: the step after it did not pay",
    "FloorOfQuota": "the CPU quota alone: there are no metrics",
}


def explain(*, name: str, namespace: str, context: str, png: str) -> None:
    """Print why; draw the curve into `png` when that is not empty.

    Raises:
        SlimError: no such object, or the API server cannot be asked; the message says which.
    """
    workload = _parse(asyncio.run(_fetch(name=name, namespace=namespace, context=context)))
    console = Console()
    console.print(render(workload, now=datetime.now(UTC)))
    if png:
        if not workload.status.curve:
            raise SlimError(f"{name} has no throughput curve yet; its metrics are not there")
        points = [(point.threads, point.tasks_per_second) for point in workload.status.curve]
        target = workload.status.target
        curve_png(
            png, points, chosen=target.threads if target else None, title=f"SimWorkload {name}"
        )
        console.print(f"curve: {png}")


def render(workload: SimWorkload, *, now: datetime) -> Group:
    """The whole explanation as one rich renderable. Pure: a function of the object and the time."""
    status = workload.status
    parts: list[Any] = [_summary(workload)]
    if status.inputs is not None:
        parts.append(_inputs(status))
    if status.steps:
        table = Table("stage", "outcome", "why", title="Decision", title_justify="left")
        for step in status.steps:
            _add(table, step.stage, step.outcome, step.reason)
        parts.append(table)
    if status.curve:
        points = [(point.threads, point.tasks_per_second) for point in status.curve]
        parts.append(
            Panel(
                curve_text(points, chosen=status.target.threads if status.target else None),
                title="predicted tasks a second of a pod, by threads",
                title_align="left",
            )
        )
    if status.pods:
        parts.append(_pods(status))
    if status.history:
        parts.append(_history(status, now))
    parts.append(_conditions(status))
    return Group(*parts)


def _summary(workload: SimWorkload) -> Table:
    status, spec = workload.status, workload.spec
    table = Table(show_header=False, box=None)
    _add(
        table,
        "SimWorkload",
        f"{workload.metadata.namespace}/{workload.metadata.name}",
        style="bold",
    )
    _add(table, "target", f"{spec.target_ref.kind}/{spec.target_ref.name}")
    _add(table, "mode", spec.update_policy.mode.value + (", suspended" if spec.suspend else ""))
    _add(table, "objective", spec.objective.type.value)
    _add(table, "current", _choice(status.current))
    _add(table, "target value", _choice(status.target))
    _add(table, "bounds", f"{_choice(status.lower_bound)} to {_choice(status.upper_bound)}")
    if status.uncapped_target is not None and status.uncapped_target != status.target:
        _add(table, "before limits", _choice(status.uncapped_target))
    _add(table, "confidence", status.confidence or "-")
    _add(table, "predictor", status.predictor or "-")
    _add(table, "chosen by", _CHOSEN_BY.get(status.tier or "", status.tier or "-"))
    _add(table, "predicted", _rate(status.predicted_tasks_per_second))
    _add(table, "measured", _rate(status.measured_tasks_per_second))
    return table


def _inputs(status: SimWorkloadStatus) -> Table:
    table = Table("of a task", "value", title="What the model saw", title_justify="left")
    inputs = status.inputs
    if inputs is None:
        return table
    for label, value in (
        ("wall time", _seconds(inputs.task_seconds)),
        ("CPU time", _seconds(inputs.task_cpu_seconds)),
        ("waiting time", _seconds(inputs.task_blocked_seconds)),
        ("dispatch time", _seconds(inputs.dispatch_seconds)),
        ("ratio r", f"{status.ratio:.3g}" if status.ratio is not None else "-"),
        ("CPU limit", f"{inputs.cpu_limit_cores:g}" if inputs.cpu_limit_cores else "none"),
        ("periods throttled", _percent(inputs.throttled_ratio)),
    ):
        _add(table, label, value)
    return table


def _pods(status: SimWorkloadStatus) -> Table:
    table = Table("pod", "threads", "wanted", "CPU limit", "state", "message", title="Pods")
    table.title_justify = "left"
    for pod in status.pods:
        _add(
            table,
            pod.name,
            "-" if pod.threads is None else str(pod.threads),
            "-" if pod.desired_threads is None else str(pod.desired_threads),
            pod.cpu_limit or "-",
            pod.state,
            pod.message,
        )
    return table


def _history(status: SimWorkloadStatus, now: datetime) -> Table:
    table = Table(
        "ago", "action", "threads", "CPU limit", "why", title="Last changes, newest first"
    )
    table.title_justify = "left"
    for entry in reversed(status.history):
        _add(
            table,
            f"{max(0, round((now - entry.time).total_seconds()))} s",
            entry.action,
            _move(entry.from_threads, entry.to_threads),
            _move(entry.from_cpu_limit, entry.to_cpu_limit),
            entry.reason,
        )
    return table


def _conditions(status: SimWorkloadStatus) -> Table:
    table = Table("condition", "is", "reason", "message", title="Conditions", title_justify="left")
    for condition in status.conditions:
        good = {"True": "green", "False": "red"}.get(condition.status, "yellow")
        _add(
            table,
            condition.type,
            Text(condition.status, style=good),
            condition.reason,
            condition.message,
        )
    return table


def _add(table: Table, *cells: str | Text, style: str | None = None) -> None:
    """A row of plain text: brackets in a message are no markup, and nothing in it moves the cursor."""
    plain = (
        Text("".join(c if c.isprintable() or c == "\n" else " " for c in cell))
        if isinstance(cell, str)
        else cell
        for cell in cells
    )
    table.add_row(*plain, style=style)


def _choice(choice: ResourceChoice | None) -> str:
    if choice is None:
        return "-"
    cpu = f", CPU limit {choice.cpu_limit}" if choice.cpu_limit else ""
    return f"{choice.threads} thread{'s' if choice.threads != 1 else ''}{cpu}"


def _move(before: object, after: object) -> str:
    """`16 -> 2`; a value that stayed stands alone."""
    if before == after or before is None:
        return "-" if after is None else str(after)
    return f"{before} -> {'-' if after is None else after}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g} tasks/s a pod"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _parse(body: dict[str, Any]) -> SimWorkload:
    """What this version does not know of a newer operator's status is left out and told."""
    known, unknown = copy.deepcopy(body), []
    for _ in range(_MOST_UNKNOWN):
        try:
            workload = SimWorkload.model_validate(known)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            if first["loc"][0] != "status" or not _without(known, first["loc"]):
                raise SlimError(
                    f"{where}: {first['msg']}; this command and the cluster's CRD may differ in"
                    " version"
                ) from error
            unknown.append(where)
        else:
            if unknown:
                Console(stderr=True).print(
                    f"not shown, since this command does not know it: {', '.join(unknown)}",
                    markup=False,
                )
            return workload
    raise SlimError("the object is of another version; use the command of the operator's release")


def _without(body: Any, path: tuple[int | str, ...]) -> bool:
    """Take one value out of the object; False when it is not there, so something is missing."""
    for part in path[:-1]:
        inside = isinstance(body, dict) and part in body
        if not inside and not (isinstance(body, list) and isinstance(part, int)):
            return False
        body = body[part]
    last = path[-1] if path else None
    if isinstance(body, dict) and last in body:
        del body[last]
        return True
    if isinstance(body, list) and isinstance(last, int) and last < len(body):
        del body[last]
        return True
    return False


async def _fetch(*, name: str, namespace: str, context: str) -> dict[str, Any]:
    from slimscale.kubeapi.client import AioKubeClient, load_configuration

    client = AioKubeClient(await load_configuration(context=context))
    where = namespace or _context_namespace(context)
    try:
        found = await client.get(paths.item(API_VERSION, SIMWORKLOAD_PLURAL, name, where))
    finally:
        await client.close()
    if found is None:
        raise SlimError(
            f"no SimWorkload {name} in namespace {where}; `kubectl get simw -A` lists them"
        )
    return found


def _context_namespace(context: str) -> str:
    """The namespace that the kubeconfig context names, as kubectl would take it."""
    from kubernetes.config import ConfigException, list_kube_config_contexts

    try:
        contexts, active = list_kube_config_contexts()  # type: ignore[no-untyped-call]
    except ConfigException:
        return "default"
    chosen = next((entry for entry in contexts if entry["name"] == context), active)
    return str(chosen["context"].get("namespace") or "default")
