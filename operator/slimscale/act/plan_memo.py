"""What `plan` remembers between two looks: per-pod deadlines and refusals, the last rollout.

Small JSON in the memo's ConfigMap. Damaged content is dropped: a deadline then starts anew.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

__all__ = ["CpuAsk", "PlanMemo", "PodEntry", "Refusal", "RolloutEntry", "load_plan_memo"]

PLAN_MEMO_VERSION = 1
MAX_PODS = 500
"""Beyond them deadlines and refusals are not remembered, those that matter least first."""
_MESSAGE_LENGTH = 120
"""Of a refusal, so that the memo of MAX_PODS pods stays below `memo_store.MAX_BYTES`."""


@dataclass(frozen=True, slots=True)
class CpuAsk:
    """Millicores of one container; None: the field is absent."""

    request: int | None
    limit: int | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A size that was taken back. It is not asked for again until something has changed."""

    ask: CpuAsk
    at_seconds: float
    why: str
    """A PodState value: what the refusal was."""
    message: str = ""
    free_millicores: int | None = None
    """Free on the node once the size had been given back; None: unknown, or room is not the point."""
    times: int = 1
    may_retry: bool = False
    """An error of the kubelet's, which may pass: asked again after a growing pause."""


@dataclass(frozen=True, slots=True)
class PodEntry:
    threads_asked: int | None = None
    threads_asked_at_seconds: float = 0.0
    cpu_asked: CpuAsk | None = None
    """The last ask that the API server took; the pod's spec must still show it."""
    pending_since_seconds: float | None = None
    """Since when spec and applied values differ: one deadline for all asks of one wait."""
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class RolloutEntry:
    """The last change of the template. `asked_*` None: left as it was."""

    threads: int
    cpu: CpuAsk
    at_seconds: float
    before_cpu: CpuAsk
    before_env: tuple[tuple[str, str], ...] = ()
    rolled_back: bool = False
    refused: str = ""
    """The API server's words when it refused the patch."""


@dataclass(frozen=True, slots=True)
class PlanMemo:
    pods: Mapping[str, PodEntry] = field(default_factory=dict)
    """By the pod's uid."""
    rollout: RolloutEntry | None = None
    foreign_changes: int = 0
    """How often somebody else changed back what we had set."""
    foreign_generation: int = 0
    """The SimWorkload's generation in which they were counted."""
    foreign_at_seconds: float = 0.0

    def to_json(self) -> dict[str, object]:
        document: dict[str, object] = {"version": PLAN_MEMO_VERSION}
        known = list(self.pods.items())
        if len(known) > MAX_PODS:
            known.sort(
                key=lambda item: item[1].refusal is None and not item[1].pending_since_seconds
            )
        pods = {uid: _lean(asdict(_shortened(entry))) for uid, entry in known[:MAX_PODS]}
        document["pods"] = {uid: entry for uid, entry in pods.items() if entry}
        if self.rollout is not None:
            rollout = _lean(asdict(self.rollout))
            rollout["before_env"] = [list(pair) for pair in self.rollout.before_env]
            document["rollout"] = rollout
        if self.foreign_changes:
            document["foreign_changes"] = self.foreign_changes
            document["foreign_generation"] = self.foreign_generation
            document["foreign_at_seconds"] = self.foreign_at_seconds
        return document

    def without_gone(self, uids: set[str]) -> "PlanMemo":
        return replace(self, pods={u: e for u, e in self.pods.items() if u in uids})


def load_plan_memo(document: Mapping[str, object]) -> PlanMemo:
    """An empty memo where there is none or it cannot be read."""
    if document.get("version") != PLAN_MEMO_VERSION:
        return PlanMemo()
    try:
        return _memo(document)
    except (TypeError, ValueError, KeyError, AttributeError):
        return PlanMemo()


def _shortened(entry: PodEntry) -> PodEntry:
    refusal = entry.refusal
    if refusal is None or len(refusal.message) <= _MESSAGE_LENGTH:
        return entry
    message = refusal.message[: _MESSAGE_LENGTH - 3] + "..."
    return replace(entry, refusal=replace(refusal, message=message))


def _lean(entry: dict[str, Any]) -> dict[str, Any]:
    """Without what is absent or has no value: the memo stays small."""
    return {
        key: _lean(value) if isinstance(value, dict) else value
        for key, value in entry.items()
        if value not in (None, "", False, 0.0)
    }


def _memo(document: Mapping[str, Any]) -> PlanMemo:
    pods: Mapping[str, Any] = document.get("pods") or {}
    rollout: Mapping[str, Any] | None = document.get("rollout")
    return PlanMemo(
        pods={str(uid): _pod(entry) for uid, entry in list(pods.items())[:MAX_PODS]},
        rollout=_rollout(rollout) if rollout else None,
        foreign_changes=int(document.get("foreign_changes") or 0),
        foreign_generation=int(document.get("foreign_generation") or 0),
        foreign_at_seconds=float(document.get("foreign_at_seconds") or 0.0),
    )


def _pod(entry: Mapping[str, Any]) -> PodEntry:
    asked, refusal = entry.get("cpu_asked"), entry.get("refusal")
    since = entry.get("pending_since_seconds")
    return PodEntry(
        threads_asked=_whole(entry.get("threads_asked")),
        threads_asked_at_seconds=float(entry.get("threads_asked_at_seconds") or 0.0),
        cpu_asked=_ask(asked) if asked is not None else None,
        pending_since_seconds=None if since is None else float(since),
        refusal=_refusal(refusal) if refusal is not None else None,
    )


def _refusal(entry: Mapping[str, Any]) -> Refusal:
    return Refusal(
        ask=_ask(entry["ask"]),
        at_seconds=float(entry["at_seconds"]),
        why=str(entry["why"]),
        message=str(entry.get("message", "")),
        free_millicores=_whole(entry.get("free_millicores")),
        times=int(entry.get("times") or 1),
        may_retry=entry.get("may_retry") is True,
    )


def _rollout(entry: Mapping[str, Any]) -> RolloutEntry:
    return RolloutEntry(
        threads=int(entry["threads"]),
        cpu=_ask(entry.get("cpu") or {}),
        at_seconds=float(entry["at_seconds"]),
        before_cpu=_ask(entry.get("before_cpu") or {}),
        before_env=tuple((str(name), str(value)) for name, value in entry.get("before_env") or []),
        rolled_back=entry.get("rolled_back") is True,
        refused=str(entry.get("refused", "")),
    )


def _ask(entry: Mapping[str, Any]) -> CpuAsk:
    return CpuAsk(_whole(entry.get("request")), _whole(entry.get("limit")))


def _whole(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("not a whole number")
    return value
