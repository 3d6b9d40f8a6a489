"""At start: does the API server know every field that this release reads and writes?

An old CRD drops the fields it does not know without a word, so that settings have no effect and
parts of the status are never seen. The published OpenAPI document shows it, and every account may
read that: no right on CRDs is needed.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

from slimscale.api.crd import CRD_NAME, simworkload_crd
from slimscale.api.names import API_VERSION, GROUP, SIMWORKLOAD_KIND, VERSION
from slimscale.exceptions import SlimError
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["missing_fields", "report_missing_fields"]

_log = logging.getLogger(__name__)
_PATH = f"/openapi/v3/apis/{API_VERSION}"
_KIND = {"group": GROUP, "version": VERSION, "kind": SIMWORKLOAD_KIND}
_TOLD = 10


async def report_missing_fields(client: KubeClient, on_count: Callable[[int], object]) -> None:
    """Say in the log and by on_count what the installed CRD lacks; never fails."""
    try:
        missing = missing_fields(await client.get(_PATH))
    except (SlimError, AttributeError, TypeError) as error:  # or a document of another form
        words = str(error) if isinstance(error, SlimError) else "an unknown form"
        _log.warning("the CRD cannot be compared with this release", extra={"error": words})
        return
    if missing is None:
        _log.warning("the API server publishes no schema of SimWorkload")
        return
    on_count(len(missing))
    if missing:
        _log.error(
            "the installed CRD is older than the operator: these fields have no effect; apply the"
            " CRD of this release",
            extra={"crd": CRD_NAME, "count": len(missing), "fields": list(missing[:_TOLD])},
        )


def missing_fields(document: Json | None) -> tuple[str, ...] | None:
    """Paths of ours that the published schema lacks; None: it is not in the document."""
    schemas: Json = ((document or {}).get("components") or {}).get("schemas") or {}
    for served in schemas.values():
        if _KIND in (served.get("x-kubernetes-group-version-kind") or []):
            ours = simworkload_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            return tuple(sorted(set(_paths(ours)) - set(_paths(served))))
    return None


def _paths(schema: Any, path: str = "") -> Iterator[str]:
    """Properties of spec and status, those inside lists and maps too."""
    if not isinstance(schema, dict):
        return
    for name, inner in (schema.get("properties") or {}).items():
        if not path and name not in ("spec", "status"):
            continue
        below = f"{path}.{name}" if path else name
        yield below
        yield from _paths(inner, below)
    for part in ("items", "additionalProperties"):
        yield from _paths(schema.get(part), f"{path}[]")
