"""Pods reach a target one after the other: the room they have taken already is still theirs."""

from dataclasses import replace

import pytest

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.observation import ContainerResources, Observation, PodObservation
from slimscale.threads.bounds import cpu_bounds, standing_of
from tests.support.observations import make_node, make_observation, make_pod, make_spec

SPEC: SimWorkloadSpec = make_spec()


def _pod(index: int, millicores: int, **changes: object) -> PodObservation:
    resources = ContainerResources(millicores, millicores, 2**28, 2**29)
    return make_pod(index, spec_resources=resources, applied_resources=resources, **changes)


def _most(observation: Observation) -> int:
    return cpu_bounds(observation, SPEC, standing_of(observation)).most


@pytest.mark.parametrize("moved", [0, 1, 2, 3])
def test_the_room_on_a_node_is_the_same_however_many_pods_have_grown_into_it(moved: int) -> None:
    pods = tuple(_pod(i, 4000 if i < moved else 1000) for i in range(3))
    requested = sum(p.spec_resources.cpu_request_millicores or 0 for p in pods)
    node = make_node(cores=12.0, requested=requested / 1000)
    assert _most(make_observation(pods, 1000.0, nodes={"node-0": node})) == 4000


@pytest.mark.parametrize("moved", [0, 1, 2, 3])
def test_so_is_the_room_in_a_quota(moved: int) -> None:
    pods = tuple(_pod(i, 4000 if i < moved else 1000) for i in range(3))
    free = 12000 - sum(p.spec_resources.cpu_limit_millicores or 0 for p in pods)
    observation = make_observation(
        pods, 1000.0, nodes={}, quota_free_limit_millicores=free, quota_free_request_millicores=free
    )
    assert _most(observation) == 4000


def test_a_new_pod_with_the_templates_size_does_not_shrink_the_others_on_a_full_node() -> None:
    pods = (_pod(0, 4000), _pod(1, 4000), _pod(2, 1000))
    full = make_node(cores=9.0, requested=9.0)
    observation = make_observation(pods, 1000.0, nodes={"node-0": full})
    assert _most(observation) >= 4000, "a limit in force stays allowed"
    elsewhere = replace(
        observation,
        pods=(pods[0], pods[1], replace(pods[2], node="node-1")),
        nodes={"node-0": full, "node-1": make_node("node-1", cores=4.0, requested=4.0)},
    )
    assert _most(elsewhere) >= 4000
