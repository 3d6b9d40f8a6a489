"""Who else sets the CPU of the target's pods."""

from collections.abc import Iterable

from slimscale.api.names import API_VERSION, SIMWORKLOAD_PLURAL
from slimscale.api.simworkload import TargetRef, UpdateMode
from slimscale.domain.observation import ConflictKind, OtherOwner
from slimscale.exceptions import NotPermitted
from slimscale.kubeapi.paths import collection
from slimscale.kubeapi.ports import Json, KubeClient

__all__ = ["active_hpas", "active_vpas", "elder_simworkloads", "read_other_owners"]

_HPA = ("autoscaling/v2", "horizontalpodautoscalers")
_VPA = ("autoscaling.k8s.io/v1", "verticalpodautoscalers")


async def read_other_owners(
    client: KubeClient, *, simworkload: Json, target: TargetRef, container: str
) -> tuple[OtherOwner, ...]:
    """All in the SimWorkload's own namespace. A list that is not permitted counts as empty.

    Raises:
        Unavailable: no answer. Not the same as nobody there: the caller goes by what it knew.
    """
    namespace = str(simworkload["metadata"]["namespace"])

    async def all_of(api_version: str, plural: str) -> list[Json]:
        try:
            return (await client.list(collection(api_version, plural, namespace))).items
        except NotPermitted:
            return []

    return (
        *active_hpas(await all_of(*_HPA), target, container),
        *active_vpas(await all_of(*_VPA), target, container),
        *elder_simworkloads(await all_of(API_VERSION, SIMWORKLOAD_PLURAL), simworkload),
    )


def active_hpas(hpas: Iterable[Json], target: TargetRef, container: str) -> list[OtherOwner]:
    """HPAs that scale the target on CPU utilisation: changing requests moves what they measure."""
    return [
        OtherOwner(ConflictKind.HPA_ON_CPU, str(hpa["metadata"]["name"]))
        for hpa in hpas
        if _points_at((hpa.get("spec") or {}).get("scaleTargetRef"), target)
        and _scales_on_cpu((hpa.get("spec") or {}).get("metrics"), container)
    ]


def _scales_on_cpu(metrics: list[Json] | None, container: str) -> bool:
    if not metrics:
        return True  # the API's default is 80 % of the CPU request
    for metric in metrics:
        match metric.get("type"):
            case "Resource":
                if (metric.get("resource") or {}).get("name") == "cpu":
                    return True
            case "ContainerResource":
                source = metric.get("containerResource") or {}
                if source.get("name") == "cpu" and source.get("container") == container:
                    return True
            case _:
                continue
    return False


def active_vpas(vpas: Iterable[Json], target: TargetRef, container: str) -> list[OtherOwner]:
    """VPAs that write the container's CPU; one that only recommends is no other owner."""
    found = []
    for vpa in vpas:
        spec: Json = vpa.get("spec") or {}
        mode = (spec.get("updatePolicy") or {}).get("updateMode", "Auto")
        if not _points_at(spec.get("targetRef"), target) or mode == "Off":
            continue
        if _vpa_controls_cpu(spec, container):
            found.append(OtherOwner(ConflictKind.VPA_ON_TARGET, str(vpa["metadata"]["name"])))
    return found


def _vpa_controls_cpu(spec: Json, container: str) -> bool:
    policies: list[Json] = (spec.get("resourcePolicy") or {}).get("containerPolicies") or []
    by_name = {str(policy.get("containerName", "")): policy for policy in policies}
    policy = by_name.get(container, by_name.get("*", {}))
    if policy.get("mode") == "Off":
        return False
    return "cpu" in (policy.get("controlledResources") or ["cpu", "memory"])


def elder_simworkloads(others: Iterable[Json], simworkload: Json) -> list[OtherOwner]:
    """Other SimWorkloads that act on the same target and were there first.

    The elder one goes on, so that a second one by mistake stops nothing; one that is Off,
    suspended or being deleted acts on nothing.
    """
    target = _target_key(simworkload)
    return [
        OtherOwner(ConflictKind.SECOND_SIMWORKLOAD, str(other["metadata"]["name"]))
        for other in others
        if other["metadata"].get("uid") != simworkload["metadata"].get("uid")
        and _target_key(other) == target
        and _acts(other)
        and _age_key(other) < _age_key(simworkload)
    ]


def _acts(simworkload: Json) -> bool:
    spec: Json = simworkload.get("spec") or {}
    mode = (spec.get("updatePolicy") or {}).get("mode", UpdateMode.OFF)
    deleted = "deletionTimestamp" in simworkload["metadata"]
    return mode != UpdateMode.OFF and not spec.get("suspend") and not deleted


def _target_key(simworkload: Json) -> tuple[str, str]:
    target = (simworkload.get("spec") or {}).get("targetRef") or {}
    return str(target.get("kind", "Deployment")), str(target.get("name", ""))


def _age_key(simworkload: Json) -> tuple[str, str]:
    metadata: Json = simworkload["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata.get("name", ""))


def _points_at(reference: Json | None, target: TargetRef) -> bool:
    if not reference:
        return False
    group = str(reference.get("apiVersion", "apps/v1")).partition("/")[0]
    return (
        group == "apps"
        and reference.get("kind") == target.kind
        and reference.get("name") == target.name
    )
