"""Kubernetes Events: for transitions, never for states; repeated ones are counted, floods cut off."""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slimscale.act.builders import event_body, rfc3339
from slimscale.api.conditions import ConditionType, Reason
from slimscale.domain.plan import PatchTemplate, Plan, ResizePod
from slimscale.exceptions import SlimError
from slimscale.kubeapi.paths import collection, item
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["EventNote", "EventWriter", "events_for"]

_log = logging.getLogger(__name__)

AGGREGATION_SECONDS = 600.0
BURST = 25
REFILL_SECONDS = 300.0
"""As Kubernetes' own components: 25 at once for an object, then one in five minutes."""
_REMEMBERED = 1024

# Warming up, starting and the like come and go; they are states on the way, not news.
_SILENT = frozenset(
    {
        Reason.WARMING_UP,
        Reason.AWAITING_ACKNOWLEDGEMENT,
        Reason.RESIZE_IN_PROGRESS,
        Reason.PROGRESSING,
        Reason.NOT_APPLIED,
        Reason.STARTING,
        Reason.PROVING,
    }
)
_TOLD = (
    ConditionType.SPEC_VALID,
    ConditionType.TARGET_RESOLVED,
    ConditionType.METRICS_AVAILABLE,
    ConditionType.NO_CONFLICT,
    ConditionType.APPLIED,
    ConditionType.ROUTER_AVAILABLE,
    ConditionType.POOLS_AVAILABLE,
    ConditionType.POLICY_IN_USE,
)


@dataclass(frozen=True, slots=True)
class EventNote:
    """kind: Normal or Warning."""

    kind: str
    reason: str
    message: str


def events_for(
    previous: Mapping[str, Any] | None, status: Mapping[str, Any], plan: Plan | None = None
) -> list[EventNote]:
    """What is news between two statuses, and what the plan takes back or rolls out. Pure."""
    notes = []
    before = previous or {}
    old = before.get("target") or {}
    new = status.get("target") or {}
    if new and new != old and (status.get("history") or []):
        entry = status["history"][-1]
        notes.append(EventNote("Normal", "TargetChanged", _with_values(new, entry)))
    conditions = {c["type"]: c for c in before.get("conditions") or []}
    for condition in status.get("conditions") or []:
        note = _of_condition(conditions.get(condition["type"]) or {}, condition)
        if note is not None:
            notes.append(note)
    for operation in plan.operations if plan is not None else ():
        if isinstance(operation, ResizePod) and operation.reverts:
            words = f"{operation.pod}: the resize was taken back ({operation.reason})"
            notes.append(EventNote("Warning", "ResizeReverted", words))
        elif isinstance(operation, PatchTemplate):
            words = f"{operation.kind} {operation.name}: {operation.threads} threads"
            back = operation.reason == "RollBack"
            notes.append(
                EventNote(
                    "Warning" if back else "Normal", "RolledBack" if back else "RollingOut", words
                )
            )
    return notes


def _of_condition(old: Mapping[str, Any], new: Mapping[str, Any]) -> EventNote | None:
    if new["type"] not in _TOLD or new["reason"] in _SILENT:
        return None
    if (old.get("status"), old.get("reason")) == (new["status"], new["reason"]):
        return None
    if new["status"] == "True":
        # Good news only after bad news.
        recovered = old.get("status") == "False" and old.get("reason") not in _SILENT
        return EventNote("Normal", new["reason"], new["message"]) if recovered else None
    return EventNote("Warning", new["reason"], new["message"] or new["type"])


class EventWriter:
    """Writes notes. A failing event never fails a reconcile; it is only logged."""

    def __init__(self, client: KubeClient, *, reporter: str) -> None:
        """reporter: the operator pod's name."""
        self._client = client
        self._reporter = reporter
        self._recent: OrderedDict[tuple[str, str, str], tuple[str, int, float]] = OrderedDict()
        self._tokens: OrderedDict[str, tuple[float, float]] = OrderedDict()

    async def write(self, simworkload: Json, notes: list[EventNote], *, now_seconds: float) -> None:
        """Send the notes about one object."""
        for note in notes:
            if not self._may(str(simworkload["metadata"].get("uid", "")), now_seconds):
                _log.info("event left out", extra={"reason": note.reason})
                continue
            try:
                await self._one(simworkload, note, now_seconds)
            except SlimError as error:
                _log.warning("event not written", extra={"reason": note.reason, "why": str(error)})

    async def _one(self, simworkload: Json, note: EventNote, now_seconds: float) -> None:
        metadata: Json = simworkload["metadata"]
        namespace = str(metadata["namespace"])
        key = (str(metadata.get("uid", "")), note.reason, note.message)
        recent = self._recent.get(key)
        if recent is not None and now_seconds - recent[2] < AGGREGATION_SECONDS:
            name, count = recent[0], recent[1] + 1
            body: Json = {"count": count, "lastTimestamp": rfc3339(now_seconds)}
            await self._client.merge_patch(item("v1", "events", name, namespace), body)
            self._recent[key] = (name, count, recent[2])
            return
        body = event_body(
            simworkload,
            kind=note.kind,
            reason=note.reason,
            message=note.message,
            now_seconds=now_seconds,
            reporter=self._reporter,
        )
        await self._client.create(collection("v1", "events", namespace), body)
        self._recent[key] = (body["metadata"]["name"], 1, now_seconds)
        while len(self._recent) > _REMEMBERED:
            self._recent.popitem(last=False)

    def _may(self, uid: str, now_seconds: float) -> bool:
        tokens, at = self._tokens.pop(uid, (float(BURST), now_seconds))
        tokens = min(float(BURST), tokens + max(0.0, now_seconds - at) / REFILL_SECONDS)
        allowed = tokens >= 1
        self._tokens[uid] = (tokens - 1 if allowed else tokens, now_seconds)
        while len(self._tokens) > _REMEMBERED:
            self._tokens.popitem(last=False)
        return allowed


def _with_values(choice: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Most reasons name the new count themselves: it is not said twice."""
    reason = str(entry.get("reason") or "")
    named = f"{choice['threads']} thread" in reason
    return reason if named else f"{_words(choice)}: {reason}"


def _words(choice: Mapping[str, Any]) -> str:
    cpu = f" on {choice['cpuLimit']} CPU" if "cpuLimit" in choice else ""
    return f"{choice['threads']} thread{'s' if choice['threads'] != 1 else ''}{cpu}"
