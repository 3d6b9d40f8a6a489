"""Send a plan's writes, each on its own: one pod that fails does not keep the others waiting."""

import logging
from collections.abc import Awaitable, Callable

from slimscale.act.builders import annotation_patch, resize_patch, template_body
from slimscale.domain.plan import (
    ApplyResult,
    Operation,
    OperationResult,
    PatchTemplate,
    Plan,
    ResizePod,
    SetThreads,
)
from slimscale.exceptions import Conflict, NotPermitted, Unavailable
from slimscale.kubeapi.paths import item
from slimscale.kubeapi.ports import Json, KubeClient, Refused

__all__ = ["Applier"]

_log = logging.getLogger(__name__)
_PLURALS = {
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
}

OnWrite = Callable[[str, str], None]
"""(resource as in RBAC, result) of each write, for the metrics."""


class Applier:
    """Every write carries the object's uid, so that a late one fails instead of hitting another."""

    def __init__(self, client: KubeClient, *, on_write: OnWrite | None = None) -> None:
        self._client = client
        self._on_write = on_write

    async def apply(
        self, plan: Plan, *, namespace: str, lease_held: Callable[[], bool]
    ) -> ApplyResult:
        """Write what the plan asks for, in its order. Nothing after the lease is lost.

        Never raises on an answer of the API server: each operation has its own result.
        """
        results: list[OperationResult] = []
        failed: set[tuple[str, str]] = set()
        for operation in plan.operations:
            if not lease_held():
                results.append(
                    _failed(operation, "Unavailable", "the lease is lost: another one writes now")
                )
                continue
            subject = (type(operation).__name__, operation.uid)
            # A pod's second write builds on its first one: threads before CPU.
            if isinstance(operation, ResizePod) and ("SetThreads", operation.uid) in failed:
                results.append(
                    _failed(operation, "Unavailable", "its thread count could not be written")
                )
                continue
            result = await self._one(operation, namespace)
            if not result.ok:
                failed.add(subject)
            results.append(result)
        return ApplyResult(tuple(results))

    async def _one(self, operation: Operation, namespace: str) -> OperationResult:
        resource, send = self._request(operation, namespace)
        try:
            await send
            result = OperationResult(operation, ok=True, changed=True)
        except Conflict as error:
            result = _failed(operation, "Conflict", str(error))
        except NotPermitted as error:
            result = _failed(operation, "NotPermitted", str(error))
        except Refused as error:
            result = _refused(operation, error)
        except Unavailable as error:
            result = _failed(operation, "Unavailable", str(error))
        if self._on_write is not None:
            self._on_write(resource, result.reason or "Success")
        if not result.ok:
            _log.warning(
                "write failed",
                extra={"resource": resource, "object": _name(operation), "reason": result.reason},
            )
        return result

    def _request(self, operation: Operation, namespace: str) -> tuple[str, Awaitable[Json]]:
        match operation:
            case SetThreads():
                path = item("v1", "pods", operation.pod, namespace)
                return "pods", self._client.merge_patch(path, annotation_patch(operation))
            case ResizePod():
                path = item("v1", "pods", operation.pod, namespace, "resize")
                return "pods/resize", self._client.strategic_patch(path, resize_patch(operation))
            case PatchTemplate():
                return _PLURALS[operation.kind], self._template(operation, namespace)

    async def _template(self, operation: PatchTemplate, namespace: str) -> Json:
        """Taken over by force only after a conflict.

        The body holds nothing but the named container's CPU and thread variables, which the mode
        makes ours; a user's own variables were left out by the plan. Whoever takes them back again
        is noticed by the next plan, which gives up after a few rounds.
        """
        path = item("apps/v1", _PLURALS[operation.kind], operation.name, namespace)
        body = template_body(operation, namespace=namespace)
        try:
            return await self._client.apply(path, body)
        except Conflict:
            return await self._client.apply(path, body, force=True)


def _refused(operation: Operation, error: Refused) -> OperationResult:
    # Another object of the same name: its uid is "immutable", says the server with 422.
    text = " ".join((str(error), *error.causes))
    if "metadata.uid" in text:
        return _failed(operation, "Conflict", "the object was replaced by another of its name")
    message = "; ".join(error.causes) or str(error)
    return _failed(operation, "Refused", message)


def _failed(operation: Operation, reason: str, message: str) -> OperationResult:
    return OperationResult(operation, ok=False, changed=False, reason=reason, message=message[:512])


def _name(operation: Operation) -> str:
    return operation.name if isinstance(operation, PatchTemplate) else operation.pod
