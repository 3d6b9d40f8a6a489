"""What the creation webhook knows of the SimWorkloads: in memory, so that it never has to ask.

The controller keeps it after each decision; at start it is filled from the status of the listed
objects, so that a pod created right after a restart gets the last target.
"""

from dataclasses import dataclass
from typing import Any

from slimscale.act.injection import InjectionChoice
from slimscale.api.conditions import ConditionType
from slimscale.api.quantity import parse_millicores
from slimscale.api.simworkload import LimitPolicy, SimWorkload, SimWorkloadSpec, UpdateMode
from slimscale.domain.decision import PodTarget
from slimscale.domain.observation import ConflictKind

__all__ = ["CatalogEntry", "InjectionCatalog", "choice_for", "entry_from_status"]

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """`selector` is the target's, in the text form of `kubectl -l`."""

    selector: str
    choice: InjectionChoice


class InjectionCatalog:
    """Finds the SimWorkload of a pod by the target's own selector."""

    def __init__(self) -> None:
        self._entries: dict[Key, CatalogEntry] = {}

    def update(self, key: Key, entry: CatalogEntry) -> None:
        """Remember what new pods of this SimWorkload's target are to get."""
        self._entries[key] = entry

    def remove(self, key: Key) -> None:
        """Forget it: the object is gone, or its target is."""
        self._entries.pop(key, None)

    def lookup(self, *, namespace: str, labels: dict[str, str]) -> InjectionChoice | None:
        """The choice for a pod. Of several SimWorkloads one that sets values, then by name.

        One that only recommends, or that yields to an elder one, must not stand in the way.
        """
        found = [
            entry.choice
            for key, entry in sorted(self._entries.items(), key=lambda known: known[0])
            if key[0] == namespace and entry.selector and selects(entry.selector, labels)
        ]
        return next((choice for choice in found if choice.set_values), found[0] if found else None)


def choice_for(
    spec: SimWorkloadSpec, *, container: str, target: PodTarget | None
) -> InjectionChoice:
    """What new pods get under this spec; only the channel while nothing may be set."""
    acts = spec.update_policy.mode is not UpdateMode.OFF and not spec.suspend
    keep_cpu = spec.cpu.limit_policy is LimitPolicy.KEEP
    return InjectionChoice(
        container=container,
        set_values=acts and target is not None,
        threads=target.threads if target else None,
        cpu_request_millicores=None if keep_cpu or not target else target.cpu_request_millicores,
        cpu_limit_millicores=None if keep_cpu or not target else target.cpu_limit_millicores,
        processes_per_pod=spec.threads.processes_per_pod,
        extra_env=tuple(spec.threads.env),
        override_user_env=spec.threads.override_user_env,
        java_tool_options=spec.threads.java_tool_options,
    )


def entry_from_status(workload: SimWorkload) -> CatalogEntry | None:
    """The entry as the last operator left it in status; None when it had not resolved the target."""
    status = workload.status
    if not status.selector:
        return None
    target = None
    yielded = any(
        condition.type == ConditionType.NO_CONFLICT
        and condition.status == "False"
        and condition.reason in set(ConflictKind)
        for condition in status.conditions
    )
    if status.target is not None and not yielded:
        target = PodTarget(
            threads=status.target.threads,
            cpu_request_millicores=_millicores(status.target.cpu_request),
            cpu_limit_millicores=_millicores(status.target.cpu_limit),
        )
    return CatalogEntry(
        selector=status.selector,
        choice=choice_for(workload.spec, container=workload.spec.container_name, target=target),
    )


def selects(selector: str, labels: dict[str, Any]) -> bool:
    """Whether a label selector in text form takes these labels; an empty one takes none."""
    return bool(selector) and all(_requirement(part, labels) for part in _split(selector))


def _split(selector: str) -> list[str]:
    """At the commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(selector):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(selector[start:index].strip())
            start = index + 1
    parts.append(selector[start:].strip())
    return [part for part in parts if part]


def _requirement(text: str, labels: dict[str, Any]) -> bool:
    for word, wanted in ((" notin ", False), (" in ", True)):
        if word in text:
            key, _, values = text.partition(word)
            members = {value.strip() for value in values.strip().strip("()").split(",")}
            return (labels.get(key.strip()) in members) is wanted
    if "!=" in text:
        key, _, value = text.partition("!=")
        return bool(labels.get(key.strip()) != value.strip())
    if "=" in text:
        key, _, value = text.replace("==", "=").partition("=")
        return bool(labels.get(key.strip()) == value.strip())
    if text.startswith("!"):
        return text[1:].strip() not in labels
    return text in labels


def _millicores(text: str | None) -> int | None:
    return None if text is None else parse_millicores(text)
