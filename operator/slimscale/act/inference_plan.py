"""Which children differ from what they ought to be, and so which writes are due. Pure.

Compared is what we ask for alone: what the API server fills in, and what others add beside it,
stays. `.spec.replicas` of a pool's Deployment goes along only where it is ours (pitfall E6).
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from slimscale.act.inference_children import Child
from slimscale.act.inference_pods import LOAD_SECONDS
from slimscale.api.names import (
    ANNOTATION_APPLIED_DIGEST,
    ANNOTATION_CONFIG_DIGEST,
    ANNOTATION_DELETION_COST,
    LOADED_ANNOTATIONS,
    LOADING_ANNOTATIONS,
)
from slimscale.api.quantity import parse_quantity
from slimscale.domain.inference import (
    AnnotatePod,
    ApplyChild,
    InferenceObservation,
    InferencePlan,
    RemoveChild,
    RemovePod,
)
from slimscale.domain.scaling import PoolDecision, ScalingDecision, ScalingOwner
from slimscale.kubeapi.ports import Json

__all__ = ["covers", "is_owned", "plan_inference"]

_REMOVABLE = {"deployments": "apps/v1", "poddisruptionbudgets": "policy/v1"}


def plan_inference(
    *,
    observation: InferenceObservation,
    children: Sequence[Child],
    decision: ScalingDecision,
    owner: ScalingOwner,
    config_digest: str,
) -> InferencePlan:
    """The writes that are due, in an order that is safe to stop at any point."""
    pools = {pool.name: pool for pool in decision.pools}
    operations: list[ApplyChild | RemoveChild | AnnotatePod | RemovePod] = []
    foreign: list[str] = []
    for child in children:
        live = observation.children.get((child.plural, child.name))
        if live is not None and not is_owned(live, observation.uid):
            foreign.append(f"{child.plural}/{child.name}")
            continue
        scaled = pools.get(child.pool) if child.plural == "deployments" else None
        operation = _apply(child, live, scaled, owner)
        if operation is not None:
            operations.append(operation)
    operations += _annotations(observation, decision, config_digest)
    operations += _removals(observation, children, decision)
    return InferencePlan(tuple(operations), tuple(foreign))


def is_owned(live: Json, uid: str) -> bool:
    """Whether the object says that the SlimInference with this uid made it."""
    owners = (live.get("metadata") or {}).get("ownerReferences") or []
    return any(owner.get("uid") == uid for owner in owners)


def _apply(
    child: Child, live: Json | None, pool: PoolDecision | None, owner: ScalingOwner
) -> ApplyChild | None:
    body = copy.deepcopy(child.body)
    reason = "Create"
    if pool is not None:
        # Absent at the first apply it would be 1; later it is sent unless another manager owns it.
        replicas = pool.replicas if live is None else pool.field_value
        if replicas is not None:
            body["spec"]["replicas"] = replicas
    if live is not None:
        if covers(live, _unlabelled(body)):
            return None
        reason = _reason(child, live)
        body["metadata"]["uid"] = live["metadata"]["uid"]
        if pool is not None and owner is ScalingOwner.EXTERNAL and "replicas" in body["spec"]:
            # The value was read a moment ago: if an HPA has changed it since, this must fail.
            body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    return ApplyChild(
        api_version=child.api_version,
        plural=child.plural,
        name=child.name,
        body=body,
        uid=str(live["metadata"]["uid"]) if live is not None else "",
        reason=reason,
    )


def _unlabelled(body: Json) -> Json:
    """Without apiVersion and kind, which the items of a list do not carry."""
    return {key: value for key, value in body.items() if key not in ("apiVersion", "kind")}


def _reason(child: Child, live: Json) -> str:
    annotations = live["metadata"].get("annotations") or {}
    wanted = child.body["metadata"]["annotations"][ANNOTATION_APPLIED_DIGEST]
    if annotations.get(ANNOTATION_APPLIED_DIGEST) != wanted:
        return "Change"
    return "Scale" if covers(live, _unlabelled(child.body)) else "Drift"


def _annotations(
    observation: InferenceObservation, decision: ScalingDecision, config_digest: str
) -> list[AnnotatePod]:
    """Pods hear of a new configuration at once; the least loaded ones are the first to go.

    A pod that has loaded its models no longer keeps a node autoscaler from its node.
    """
    costs = {name: cost for pool in decision.pools for name, cost in pool.deletion_costs.items()}
    loaded = _loaded_pods(observation)
    found = []
    for pod in observation.pods:
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            continue
        wanted = {ANNOTATION_CONFIG_DIGEST: config_digest}
        if metadata["name"] in costs:
            wanted[ANNOTATION_DELETION_COST] = str(costs[metadata["name"]])
        present = metadata.get("annotations") or {}
        if metadata["name"] in loaded and _is_kept(present):
            wanted |= LOADED_ANNOTATIONS
        changed = {key: value for key, value in wanted.items() if present.get(key) != value}
        if changed:
            found.append(AnnotatePod(str(metadata["name"]), str(metadata["uid"]), changed))
    return found


def _is_kept(annotations: Mapping[str, str]) -> bool:
    return any(annotations.get(key) == value for key, value in LOADING_ANNOTATIONS.items())


def _loaded_pods(observation: InferenceObservation) -> frozenset[str]:
    """Ready once, or so long in starting that they must not hold a node any more."""
    now = observation.sampled_at_seconds
    return frozenset(
        pod.name
        for pool in observation.scaling.pools
        for pod in pool.pods
        if pod.ready or now - pod.created_at_seconds > LOAD_SECONDS
    )


def _removals(
    observation: InferenceObservation, children: Sequence[Child], decision: ScalingDecision
) -> list[RemoveChild | RemovePod]:
    wanted = {(child.plural, child.name) for child in children}
    found: list[RemoveChild | RemovePod] = [
        RemoveChild(_REMOVABLE[plural], plural, name, str(live["metadata"]["uid"]))
        for (plural, name), live in sorted(observation.children.items())
        if plural in _REMOVABLE
        and (plural, name) not in wanted
        and is_owned(live, observation.uid)
        and "deletionTimestamp" not in live["metadata"]
    ]
    uids = {str(pod["metadata"]["name"]): str(pod["metadata"]["uid"]) for pod in observation.pods}
    found += [RemovePod(name, uids[name]) for name in decision.replace_pods if name in uids]
    return found


def covers(live: Any, wanted: Any) -> bool:
    """Whether everything that is asked for stands there as asked; more than that may stand there.

    Entries of a list are found by their name, or by their place where they have none.
    """
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and covers(live[key], value)
            if not _is_empty(value)
            else _is_empty(live.get(key))
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and _covers_list(live, wanted)
    if live == wanted:
        return True
    return _same_quantity(live, wanted)


def _covers_list(live: list[Any], wanted: list[Any]) -> bool:
    if wanted and all(isinstance(entry, Mapping) and "name" in entry for entry in wanted):
        by_name = {entry.get("name"): entry for entry in live if isinstance(entry, Mapping)}
        return all(covers(by_name.get(entry["name"]), entry) for entry in wanted)
    if wanted and all(isinstance(entry, Mapping) and "uid" in entry for entry in wanted):
        return all(any(covers(there, entry) for there in live) for entry in wanted)
    return len(live) == len(wanted) and all(map(covers, live, wanted))


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", {}, [])


def _same_quantity(live: Any, wanted: Any) -> bool:
    """`1000m` is stored as `1`. Only texts that differ and are quantities come to this."""
    if isinstance(live, bool) or isinstance(wanted, bool):
        return False
    try:
        return parse_quantity(live) == parse_quantity(wanted)
    except (ValueError, TypeError):
        return False
