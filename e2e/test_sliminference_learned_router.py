"""A learned policy on two unlike pools: in shadow, then active, broken files, faults; nothing is lost.

The policy of the ConfigMaps is a plain sum of the features (a priced greedy score), so that no trained
file is needed to see files come, break and go. The one that ships is tried where it is there.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from e2e import images
from e2e.conftest import Cluster
from e2e.disturbances import METRICS, all_ready, delete_pod, kill, ready_pods
from e2e.eventually import eventually
from e2e.kubectl import Kubectl
from e2e.load.plan import make_plan, steady
from e2e.load.pod import LoadPod
from e2e.load.tally import tally
from e2e.sliminferences import SMALL, Inference, manifest
from slimscale.act.policy_manifest import policy_config_map
from slimscale.routing.learned.features import CELL_FEATURES, REGIME_FEATURES
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.serving.router.learned import SHIPPED_POLICY
from slimscale.weights import read_weights

RATE = 50.0
BEFORE_SECONDS = 5.0
TAKEN_UP_SECONDS = 100.0
"""A kubelet refreshes a volume within a minute or so, at once where the operator annotates the pod."""
PROVEN_SECONDS = 300.0
SLOW = {
    "requests": {"cpu": "50m", "memory": "160Mi"},
    "limits": {"cpu": "300m", "memory": "512Mi"},
}
POOLS = [
    {"name": "cpu", "minReplicas": 1, "maxReplicas": 1, "resources": SMALL, "powerWatts": 65},
    {"name": "small", "minReplicas": 1, "maxReplicas": 1, "resources": SLOW, "powerWatts": 12},
]
LOG = {"samplePercent": 100}

pytestmark = pytest.mark.timeout(600, func_only=True)


def service(*, mode: str = "Active", config_map: str | None = "tuned") -> dict[str, Any]:
    learned: dict[str, Any] = {} if config_map is None else {"policyConfigMap": config_map}
    routing = {"policy": "PPO", "mode": mode, "learned": learned, "decisionLog": LOG}
    return manifest(pools=POOLS, routing=routing, slo={"latencyMilliseconds": 2000})


def tuned(version: str, *, name: str = "tuned") -> dict[str, Any]:
    cells, regimes = len(CELL_FEATURES), len(REGIME_FEATURES)
    weights = PolicyWeights(version, np.ones(cells), np.zeros((cells, regimes)))
    data, card = weights.write({})
    return policy_config_map(name, data=data, card=card)


def broken(version: str) -> dict[str, Any]:
    """The weights are cut off; the card still speaks of the whole."""
    whole = tuned(version)
    whole["binaryData"]["policy.safetensors"] = whole["binaryData"]["policy.safetensors"][:400]
    return whole


def start(kubectl: Kubectl, **settings: Any) -> Inference:
    kubectl.apply(service(**settings))
    inference = Inference(kubectl)
    all_ready(inference, "pool", 2)
    all_ready(inference, "router", 2)
    return inference


def policy_is(inference: Inference, status: str, *reasons: str) -> None:
    """Wait for the condition PolicyInUse."""

    def holds() -> bool:
        found = inference.condition("PolicyInUse")
        return found.get("status") == status and found.get("reason") in reasons

    eventually(holds, TAKEN_UP_SECONDS, what=f"PolicyInUse is {status} for {reasons}")


@contextmanager
def load_on(inference: Inference, seconds: float) -> Iterator[Callable[[], float]]:
    """50 requests a second around the block; none of them is lost, wrong, doubled or refused."""
    arrivals = steady(RATE, seconds)
    pod = LoadPod(
        inference.kubectl,
        images.built_references()["dataplane"],
        make_plan("learned", arrivals, deadline_seconds=30.0),
    )
    pod.start()
    began = pod.run().start_unix_seconds
    assert began is not None
    time.sleep(BEFORE_SECONDS)
    yield lambda: time.time() - began
    assert time.time() - began < arrivals[-1], "what happened took longer than the load"
    counted = tally(pod.finish(), len(arrivals))
    print(counted)
    assert counted.flawless, str(counted)


def metrics(inference: Inference) -> dict[str, float]:
    """Of all routers, added up: name with its labels to value."""
    found: dict[str, float] = {}
    for pod in ready_pods(inference, "router"):
        page = inference.kubectl.exec(pod.name, ["python", "-c", METRICS], container="router")
        for line in page.splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                found[name] = found.get(name, 0.0) + float(value)
    return found


def decided_by(inference: Inference, policy: str) -> float:
    wanted = f'policy="{policy}"'
    return sum(
        value
        for name, value in metrics(inference).items()
        if name.startswith("slimscale_router_decisions_total") and wanted in name
    )


def test_in_shadow_then_active_under_load(serving: Cluster, kubectl: Kubectl) -> None:
    kubectl.apply(tuned("1"))
    inference = start(kubectl, mode="Shadow")
    with load_on(inference, 150.0):
        policy_is(inference, "True", "InShadow")
        figures = metrics(inference)
        compared = sum(
            value
            for name, value in figures.items()
            if name.startswith("slimscale_router_shadow_decisions_total")
        )
        assert compared > 0
        assert decided_by(inference, "PPO") == 0
        kubectl.apply(service(mode="Active"))
        policy_is(inference, "True", "InUse")
        eventually(lambda: decided_by(inference, "PPO") > 100, 60, what="PPO routes")
    figures = metrics(inference)
    verdicts = {n: v for n, v in figures.items() if n.startswith("slimscale_router_shield_total")}
    print(verdicts)
    assert verdicts.get('slimscale_router_shield_total{verdict="Stood"}', 0) > 100
    assert inference.status()["routing"] | {"overruledShare": 0} == {
        "policy": "PPO", "acting": "PPO", "stage": "Active", "version": "1", "overruledShare": 0,
    }  # fmt: skip
    assert figures["slimscale_router_decision_log_decisions"] > 100


def test_a_broken_file_is_refused_and_a_missing_one_named(
    serving: Cluster, kubectl: Kubectl
) -> None:
    kubectl.apply(tuned("1"))
    inference = start(kubectl)
    with load_on(inference, 240.0):
        policy_is(inference, "True", "InUse")
        kubectl.apply(broken("2"))
        policy_is(inference, "False", "PolicyRefused")
        message = inference.condition("PolicyInUse")["message"]
        assert "do not belong together, or one is damaged" in message
        assert "policy 1 stays in use" in message
        assert inference.ready()  # requests are answered all along
        assert inference.status()["routing"]["version"] == "1"
        kubectl.run("delete", "configmap", "tuned")
        policy_is(inference, "False", "PolicyNotFound")
        assert "there is no ConfigMap tuned" in inference.condition("PolicyInUse")["message"]
        kubectl.apply(tuned("1"))
        policy_is(inference, "True", "InUse")


def test_a_broken_file_from_the_start_leaves_the_heuristic_to_answer(
    serving: Cluster, kubectl: Kubectl
) -> None:
    kubectl.apply(broken("1"))
    inference = start(kubectl)
    with load_on(inference, 40.0):
        policy_is(inference, "False", "PolicyRefused")
    assert decided_by(inference, "ColdAwareSED") > 500
    assert decided_by(inference, "PPO") == 0
    assert inference.status()["routing"]["acting"] == "ColdAwareSED"


@pytest.mark.timeout(900, func_only=True)
def test_a_new_file_is_taken_up_in_shadow_then_canary_then_active(
    serving: Cluster, kubectl: Kubectl
) -> None:
    kubectl.apply(tuned("1"))
    inference = start(kubectl)
    with load_on(inference, PROVEN_SECONDS + 120.0):
        policy_is(inference, "True", "InUse")
        before = {pod.uid for pod in ready_pods(inference, "router")}
        kubectl.apply(tuned("2"))
        policy_is(inference, "Unknown", "ProvingItself")
        stages: list[str] = []

        def active_again() -> bool:
            routing = inference.status()["routing"]
            stages.append(routing.get("stage", ""))
            return bool(routing.get("stage") == "Active" and routing.get("version") == "2")

        eventually(active_again, PROVEN_SECONDS, interval_seconds=2.0, what="version 2 is active")
        assert [stage for stage in ("Shadow", "Canary") if stage in stages] == ["Shadow", "Canary"]
        assert {pod.uid for pod in ready_pods(inference, "router")} == before


@pytest.mark.timeout(900, func_only=True)
def test_faults_under_the_learned_policy_lose_nothing(serving: Cluster, kubectl: Kubectl) -> None:
    kubectl.apply(tuned("1"))
    inference = start(kubectl)
    with load_on(inference, 300.0) as seconds:
        policy_is(inference, "True", "InUse")
        steps: list[tuple[str, Callable[[], None]]] = [
            ("model server killed", partial(kill, inference, "pool", "model-server")),
            ("sidecar killed", partial(kill, inference, "pool", "batcher")),
            ("pod deleted", partial(delete_pod, inference)),
        ]
        for name, step in steps:
            print(f"{seconds():.0f} s: {name}")
            step()
        policy_is(inference, "True", "InUse")
    assert decided_by(inference, "PPO") > 1000


def test_the_policy_that_ships_routes(serving: Cluster, kubectl: Kubectl) -> None:
    found = read_weights(SHIPPED_POLICY)
    if found is None:
        pytest.skip("this version ships no policy")
    _, card = found
    inference = start(kubectl, config_map=None)
    with load_on(inference, 60.0):
        policy_is(inference, "True", "InUse")
        eventually(lambda: decided_by(inference, "PPO") > 100, 60, what="PPO routes")
    assert inference.status()["routing"]["version"] == card["version"]


def test_decisions_can_be_fetched_from_the_routers(
    serving: Cluster, kubectl: Kubectl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from slimscale.cli.fetch_log import fetch_log
    from slimscale.routing.decision_records import decode_segment

    kubectl.apply(tuned("1"))
    inference = start(kubectl)
    with load_on(inference, 30.0):
        policy_is(inference, "True", "InUse")
    monkeypatch.setenv("KUBECONFIG", str(kubectl.kubeconfig))
    fetched = fetch_log(
        name=inference.name, namespace=kubectl.namespace, context=kubectl.context, out=tmp_path
    )
    records = [
        record
        for path in tmp_path.iterdir()
        for record in decode_segment(path.read_bytes()).records
    ]
    assert fetched == len(records) > 500
    assert sum(record.acted for record in records) > 100
    text = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert all(pod.name.encode() not in text for pod in ready_pods(inference))
    print(json.dumps({"decisions": fetched}))
