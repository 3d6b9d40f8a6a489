"""What the tests of `decide` share: three loads, a settled plant, one question."""

from dataclasses import replace

from slimscale.domain.decision import Decision
from slimscale.domain.observation import (
    Freshness,
    Observation,
    PodObservation,
)
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from tests.support.observations import (
    SyntheticWorkload,
    drive,
    make_observation,
    make_pod,
    make_sample,
    make_spec,
)

HEAVY = NetworkParameters(0.0, 20e-3, 60e-6, 2.0, contention_linear=0.7)
BLOCKING = NetworkParameters(20e-3, 2e-3, 60e-6, 2.0, contention_linear=0.7)
LIGHT = NetworkParameters(0.0, 20e-6, 60e-6, 2.0, contention_linear=0.7)
SPEC = make_spec()


def settled(
    truth: NetworkParameters = BLOCKING, **fields: object
) -> tuple[SyntheticWorkload, dict[str, object], Decision]:
    """A plant after two minutes, its memo and last decision."""
    plant = SyntheticWorkload(truth, threads=8, noise=0.02)
    seen: list[Decision] = []
    memo = drive(plant, make_spec(**fields), 24, decide=decide, each=seen.append)
    return plant, memo, seen[-1]


def ask(
    plant: SyntheticWorkload, memo: dict[str, object], pod: PodObservation | None = None
) -> Decision:
    observation = plant.observe()
    if pod is not None:
        observation = replace(observation, pods=(pod,))
    return decide(observation=observation, spec=SPEC, memo=memo, now_seconds=plant.now_seconds)


def fresh_decision(observation: Observation, **fields: object) -> Decision:
    return decide(
        observation=observation,
        spec=make_spec(**fields),
        memo={},
        now_seconds=observation.sampled_at_seconds,
    )


def step_outcomes(decision: Decision) -> set[str]:
    return {step.outcome for step in decision.steps}


def workload(count: int, *, broken: int) -> Observation:
    pods = []
    for index in range(count):
        uid = f"uid-{index}"
        samples = tuple(
            make_sample(1000.0 + 5 * i, tasks=100.0 * i, pod_uid=uid, threads=2) for i in range(5)
        )
        pod = make_pod(index, samples=samples)
        if index < broken:
            pod = replace(pod, samples=(), freshness=Freshness.MISSING)
        pods.append(pod)
    return make_observation(tuple(pods), 1020.0)
