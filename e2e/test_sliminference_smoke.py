"""The shortest way through serving: one resource, a few hundred requests, a pod deleted on the way."""

import pytest
import yaml

from e2e import images
from e2e.conftest import Cluster
from e2e.disturbances import all_ready, delete_pod, ready_pods
from e2e.eventually import eventually
from e2e.kubectl import Kubectl
from e2e.load.plan import make_plan, steady
from e2e.load.pod import LoadPod
from e2e.load.tally import tally
from e2e.paths import ROOT
from e2e.sliminferences import Inference, Json
from slimscale.api.sliminference import SlimInference

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(240, func_only=True)]

RATE, SECONDS = 20.0, 18.0
DEADLINE_SECONDS = 30.0
"""Longer than a new pod takes: what is slow on a busy machine is not lost."""
PODS = 2


def example() -> Json:
    """The resource that is shown to users, with two pods of its first pool, neither more nor less."""
    found: Json = yaml.safe_load((ROOT / "examples/sliminference.yaml").read_text("utf-8"))
    pool = found["spec"]["pools"][0] | {"minReplicas": PODS, "maxReplicas": PODS}
    found["spec"]["pools"] = [pool]
    return found


def test_the_example_serves_every_request_while_a_pod_is_deleted_and_says_how_it_is(
    serving: Cluster, kubectl: Kubectl
) -> None:
    resource = example()
    name, model = resource["metadata"]["name"], resource["spec"]["model"]["name"]
    kubectl.apply(resource)
    inference = Inference(kubectl, name)
    all_ready(inference, "pool", PODS)
    load = LoadPod(
        kubectl,
        images.built_references()["dataplane"],
        make_plan(
            "smoke", steady(RATE, SECONDS), host=name, model=model,
            deadline_seconds=DEADLINE_SECONDS,
        ),
    )  # fmt: skip
    load.start()
    before = {pod.name for pod in ready_pods(inference)}
    delete_pod(inference)
    [gone] = before - {pod.name for pod in ready_pods(inference)}
    run = load.finish()
    counted = tally(run, round(RATE * SECONDS))
    print(counted)
    assert counted.flawless, str(counted)
    assert counted.refused == 0, str(counted)
    answered_by = {one.pod for one in run.ended}
    assert gone in answered_by, "it was deleted before it had served: nothing was tried"
    assert len(answered_by) > 1

    inference.wait_ready(60)
    status = eventually(lambda: _with_figures(inference), 60)
    thing = kubectl.get("sliminference", name)
    SlimInference.model_validate(thing)
    assert status["url"] == f"http://{name}.{kubectl.namespace}.svc"
    shares = {width["model"]: width["share"] for width in status["widths"]}
    assert set(shares) == {width["model"] for width in resource["spec"]["model"]["widths"]}
    header, row = kubectl.run("get", "slim", name).strip().splitlines()
    shown = dict(zip(header.split(), row.split(), strict=False))
    assert (shown["NAME"], shown["MODEL"], shown["READY"]) == (name, model, "True")
    assert shown["READY-PODS"] == str(PODS)


def _with_figures(inference: Inference) -> Json:
    """The status once the routers' figures are in it."""
    status = inference.status()
    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    assert conditions["MetricsAvailable"] == "True", conditions
    assert (status["replicas"], status["readyReplicas"]) == (PODS, PODS), status
    assert status.get("widths"), status
    [pool] = status["pools"]
    assert pool["warmWidths"], pool
    return status
