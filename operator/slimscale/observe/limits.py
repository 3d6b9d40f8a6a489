"""LimitRanges and ResourceQuotas of a namespace, as bounds on CPU."""

from collections.abc import Iterable
from typing import Any

from slimscale.api.quantity import parse_millicores, parse_quantity
from slimscale.domain.observation import LimitRangeBounds
from slimscale.exceptions import NotPermitted, Unavailable
from slimscale.kubeapi.paths import collection
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["QuotaRoom", "limit_range_bounds", "quota_room", "read_limits"]

QuotaRoom = tuple[int | None, int | None]
"""(limits.cpu, requests.cpu) still free, millicores; None: no quota on it."""

_SCOPES_OF_ORDINARY_PODS = {"NotTerminating", "NotBestEffort"}


async def read_limits(client: KubeClient, namespace: str) -> tuple[LimitRangeBounds, QuotaRoom]:
    """Bounds of a namespace. Not permitted or not reachable reads as no bound: the API server
    still refuses what breaks one, and that refusal is reported."""
    try:
        ranges = await client.list(collection("v1", "limitranges", namespace))
        bounds = limit_range_bounds(ranges.items)
    except (NotPermitted, Unavailable):
        bounds = LimitRangeBounds()
    try:
        quotas = await client.list(collection("v1", "resourcequotas", namespace))
        room = quota_room(quotas.items)
    except (NotPermitted, Unavailable):
        room = (None, None)
    return bounds, room


def limit_range_bounds(ranges: Iterable[Json]) -> LimitRangeBounds:
    minima: list[int] = []
    maxima: list[int] = []
    ratios: list[float] = []
    for limit_range in ranges:
        for limit in (limit_range.get("spec") or {}).get("limits") or []:
            if limit.get("type") != "Container":
                continue
            _append(minima, (limit.get("min") or {}).get("cpu"))
            _append(maxima, (limit.get("max") or {}).get("cpu"))
            ratio = (limit.get("maxLimitRequestRatio") or {}).get("cpu")
            if ratio is not None:
                ratios.append(float(parse_quantity(ratio)))
    return LimitRangeBounds(
        min_cpu_millicores=max(minima, default=None),
        max_cpu_millicores=min(maxima, default=None),
        max_limit_request_ratio=min(ratios, default=None),
    )


def quota_room(quotas: Iterable[Json]) -> QuotaRoom:
    """Quotas with a scope that long-running pods with requests do not fall under are left out."""
    limits: list[int] = []
    requests: list[int] = []
    for quota in quotas:
        spec: Json = quota.get("spec") or {}
        if set(spec.get("scopes") or []) - _SCOPES_OF_ORDINARY_PODS or spec.get("scopeSelector"):
            continue
        status: Json = quota.get("status") or {}
        hard: Json = status.get("hard") or spec.get("hard") or {}
        used: Json = status.get("used") or {}
        for name, found in (("limits.cpu", limits), ("requests.cpu", requests), ("cpu", requests)):
            if name in hard:
                free = parse_millicores(hard[name]) - parse_millicores(used.get(name, 0))
                found.append(max(0, free))
    return min(limits, default=None), min(requests, default=None)


def _append(values: list[int], quantity: Any) -> None:
    if quantity is not None:
        values.append(parse_millicores(quantity))
