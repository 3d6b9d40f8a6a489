"""Send the writes of a SlimInference's plan; each has a result of its own, none raises."""

import logging
from collections.abc import Awaitable, Callable

from slimscale.act.inference_plan import is_owned
from slimscale.api.names import FIELD_MANAGER_INFERENCE
from slimscale.domain.inference import (
    AnnotatePod,
    ApplyChild,
    ChildResult,
    InferencePlan,
    RemoveChild,
    RemovePod,
)
from slimscale.exceptions import Conflict, NotPermitted, SlimError, Unavailable
from slimscale.kubeapi.paths import item
from slimscale.kubeapi.ports import KubeClient, Refused

__all__ = ["ChildApplier"]

_log = logging.getLogger(__name__)
OnWrite = Callable[[str, str], None]
"""(resource as in RBAC, result) of each write, for the metrics."""
Operation = ApplyChild | RemoveChild | AnnotatePod | RemovePod


class ChildApplier:
    """Own field manager; every write carries the uid of the object that was looked at."""

    def __init__(self, client: KubeClient, *, on_write: OnWrite | None = None) -> None:
        self._client = client
        self._on_write = on_write

    async def apply(
        self, plan: InferencePlan, *, namespace: str, owner_uid: str, lease_held: Callable[[], bool]
    ) -> tuple[ChildResult, ...]:
        """Write in the plan's order; return what failed. Nothing after the lease is lost."""
        failed = [
            ChildResult(plural, name, "NameTaken", "an object of somebody else has this name")
            for plural, _, name in (entry.partition("/") for entry in plan.foreign)
        ]
        for operation in plan.operations:
            resource, name = _subject(operation)
            if not lease_held():
                words = "the lease is lost: another one writes now"
                failed.append(ChildResult(resource, name, "Unavailable", words))
                continue
            result = await self._one(operation, namespace, owner_uid)
            if result is not None:
                failed.append(result)
            if self._on_write is not None:
                self._on_write(resource, result.reason if result is not None else "Success")
        return tuple(failed)

    async def _one(
        self, operation: Operation, namespace: str, owner_uid: str
    ) -> ChildResult | None:
        try:
            if isinstance(operation, ApplyChild) and not operation.uid:
                return await self._create(operation, namespace, owner_uid)
            await self._send(operation, namespace)
        except SlimError as error:
            return _failure(operation, error)
        return None

    async def _create(
        self, operation: ApplyChild, namespace: str, owner_uid: str
    ) -> ChildResult | None:
        """An apply would take over an object of the same name: only one of ours is changed."""
        path = item(operation.api_version, operation.plural, operation.name, namespace)
        found = await self._client.get(path)
        if found is not None and not is_owned(found, owner_uid):
            words = (
                "an object of this name is there and is not ours; rename it or the SlimInference"
            )
            return ChildResult(operation.plural, operation.name, "NameTaken", words)
        await self._client.apply(path, operation.body, force=True, manager=FIELD_MANAGER_INFERENCE)
        return None

    def _send(self, operation: Operation, namespace: str) -> Awaitable[object]:
        match operation:
            case ApplyChild():
                path = item(operation.api_version, operation.plural, operation.name, namespace)
                return self._client.apply(
                    path, operation.body, force=True, manager=FIELD_MANAGER_INFERENCE
                )
            case RemoveChild():
                path = item(operation.api_version, operation.plural, operation.name, namespace)
                return self._client.delete(path, uid=operation.uid)
            case AnnotatePod():
                body = {
                    "metadata": {"uid": operation.uid, "annotations": dict(operation.annotations)}
                }
                return self._client.merge_patch(item("v1", "pods", operation.pod, namespace), body)
            case RemovePod():
                return self._client.delete(
                    item("v1", "pods", operation.pod, namespace), uid=operation.uid
                )


def _failure(operation: Operation, error: SlimError) -> ChildResult | None:
    """None: a pod that has gone by itself, or was replaced, needs nothing any more."""
    resource, name = _subject(operation)
    causes = error.causes if isinstance(error, Refused) else ()
    message = "; ".join(causes) or str(error)
    replaced = isinstance(error, Conflict) or "metadata.uid" in message
    if replaced and isinstance(operation, RemovePod | AnnotatePod):
        return None
    match error:
        case NotPermitted():
            reason = "NotPermitted"
        case Refused() if not replaced:
            reason = "Refused"
        case Unavailable():
            reason = "Unavailable"
        case _:
            reason = "Conflict"
    _log.warning("write failed", extra={"resource": resource, "object": name, "reason": reason})
    return ChildResult(resource, name, reason, message[:512])


def _subject(operation: Operation) -> tuple[str, str]:
    if isinstance(operation, ApplyChild | RemoveChild):
        return operation.plural, operation.name
    return "pods", operation.pod
