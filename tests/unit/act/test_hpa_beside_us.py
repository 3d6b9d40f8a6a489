"""B11: an HPA divides usage by the request; who moves the request moves the replicas."""

import math
from dataclasses import replace

from slimscale.act.status_conditions import conditions_of
from slimscale.domain.decision import PodTarget
from slimscale.domain.observation import ConflictKind, OtherOwner
from slimscale.domain.plan import ApplyResult, Plan
from tests.support.decisions import FollowedPod, make_decision, pod_with
from tests.support.observations import make_node, make_observation, make_spec

HPA = (OtherOwner(ConflictKind.HPA_ON_CPU, "web"),)
DEMAND_CORES = 3.0


class Autoscaler:
    """HPA's rule at 70 % of the request, with its tolerance of a tenth."""

    def __init__(self) -> None:
        self.replicas = 4
        self.changes = 0

    def look(self, request_millicores: int) -> None:
        utilisation = 1000 * DEMAND_CORES / self.replicas / request_millicores
        if abs(utilisation / 0.7 - 1.0) > 0.1:
            wanted = math.ceil(self.replicas * utilisation / 0.7)
            self.changes += wanted != self.replicas
            self.replicas = wanted


def run(*, controlled: str, may_write: bool) -> Autoscaler:
    """A hundred looks of both at one constant load; our target follows the load of a pod."""
    spec = make_spec(cpu={"controlledValues": controlled})
    pod = FollowedPod(
        pod_with(request=1000, limit=2000),
        spec,
        changes={"other_owners": HPA, "nodes": {"node-0": make_node(cores=32.0)}},
    )
    autoscaler = Autoscaler()
    for _ in range(100):
        share = round(1000 * DEMAND_CORES / autoscaler.replicas)
        pod.step(PodTarget(4, max(100, round(share / 1.3)), 2 * share), may_write=may_write)
        autoscaler.look(pod.pod.spec_resources.cpu_request_millicores or 1)
    return autoscaler


def test_beside_an_hpa_limits_only_does_not_move_its_replicas() -> None:
    assert run(controlled="LimitsOnly", may_write=True).changes <= 2


def test_without_limits_only_nothing_is_written_so_the_replicas_settle() -> None:
    assert run(controlled="RequestsAndLimits", may_write=False).changes <= 2


def test_the_two_would_chase_each_other_if_requests_were_written() -> None:
    """That the simulation can show it at all."""
    assert run(controlled="RequestsAndLimits", may_write=True).changes > 2


def test_limits_only_beside_an_hpa_is_no_conflict_but_a_second_simworkload_is() -> None:
    hpa = OtherOwner(ConflictKind.HPA_ON_CPU, "scaler")
    rival = OtherOwner(ConflictKind.SECOND_SIMWORKLOAD, "rival")

    def said(owners: tuple[OtherOwner, ...], **cpu: str) -> tuple[str, str]:
        observation = replace(make_observation((pod_with(),), 1000.0), other_owners=owners)
        rows = conditions_of(
            observation=observation, decision=make_decision(PodTarget(4, 1000, 2000)), plan=Plan(()),
            result=ApplyResult(()), spec=make_spec(cpu=cpu), previous=[], now_seconds=1000.0,
        )  # fmt: skip
        (row,) = [r for r in rows if r["type"] == "NoConflict"]
        return row["status"], row["reason"]

    assert said((hpa,)) == ("False", "HorizontalPodAutoscalerOnCPU")
    assert said((hpa,), controlledValues="LimitsOnly")[0] == "True"
    assert said((hpa, rival), controlledValues="LimitsOnly") == ("False", "SecondSimWorkload")
