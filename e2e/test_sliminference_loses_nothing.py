"""Under 50 requests a second nothing is lost, doubled or wrong, whatever happens to the pods.

Each answer is compared with what the width that it names gives for its input. Lost: no 2xx answer
within the deadline. Refused: an early 429 or 503, which there must be none of either. Doubled: a
second answer to an id, or an answer that nobody asked for. The client tries nothing again. There is
one exception: what a router held that was killed dies with it, so the client sends a request whose
connection broke without an answer once more under its id, as HTTP clients do, and only those.

Work can be begun twice where a process dies with it (docs/adr/0013 and 0016), and nowhere else: where
everything ends in an orderly way no router may have sent a request again after it lost its connection.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from e2e import images
from e2e.conftest import Cluster
from e2e.disturbances import (
    all_ready,
    delete_pod,
    drained,
    kill,
    kill_operator,
    ready_pods,
    rerun_requests,
    roll,
    scale_pool,
)
from e2e.eventually import eventually
from e2e.kubectl import Kubectl
from e2e.load.plan import make_plan, steady
from e2e.load.pod import LoadPod
from e2e.load.tally import Run, tally
from e2e.sliminferences import SMALL, Inference, manifest

RATE = 50.0
SECONDS = 50.0
BEFORE_SECONDS = 5.0
FROM_ZERO_DEADLINE_SECONDS = 60.0
KILLED_ROUTER_SECONDS = 5.0
"""For so long around its end a killed router can have cut requests off."""
LOADS_NODE, OTHER_NODE = "a", "b"
QUICK = {
    "stableWindowSeconds": 10,
    "panicWindowSeconds": 4,
    "scaleToZeroAfterSeconds": 10,
    "downStabilisationSeconds": 5,
    "downCooldownSeconds": 2,
}

pytestmark = pytest.mark.timeout(420, func_only=True)


def service(least: int = 2) -> dict[str, Any]:
    """Two routers, and two pods unless it may be less."""
    pool = {"name": "cpu", "minReplicas": least, "maxReplicas": 3, "resources": SMALL}
    return manifest(pools=[pool], scaling=QUICK, routing={"bufferRequests": 5000})


@pytest.fixture
def fashion(serving: Cluster, kubectl: Kubectl) -> Inference:
    """Two pods and two routers, all of them ready."""
    kubectl.apply(service())
    inference = Inference(kubectl)
    all_ready(inference, "pool", 2)
    all_ready(inference, "router", 2)
    return inference


@dataclass(slots=True)
class Loaded:
    """A load that runs; `seconds` since it began."""

    pod: LoadPod
    start: float

    @property
    def seconds(self) -> float:
        return time.time() - self.start

    def finish(self) -> Run:
        """Wait for each request's end; then the one assertion."""
        run = self.pod.finish()
        counted = tally(run, len(self.pod.plan["arrivals"]))
        print(counted)
        assert counted.flawless, str(counted)
        return run


@contextmanager
def load_on(inference: Inference, arrivals: list[float], **settings: Any) -> Iterator[Loaded]:
    """From a pod on the node that is not drained. What happens inside must end before the load does."""
    pod = LoadPod(
        inference.kubectl,
        images.built_references()["dataplane"],
        make_plan("e2e", arrivals, **settings),
        node_selector={"slimscale.dev/pool": LOADS_NODE},
    )
    pod.start()
    start = pod.run().start_unix_seconds
    assert start is not None
    loaded = Loaded(pod, start)
    time.sleep(BEFORE_SECONDS)
    yield loaded
    assert loaded.seconds < arrivals[-1], "what happened took longer than the load"


def under_load(inference: Inference, disturb: Callable[[], None], **settings: Any) -> None:
    """A load of 50 s, and a disturbance early in it."""
    with load_on(inference, steady(RATE, SECONDS), **settings) as loaded:
        disturb()
        print(f"it took {loaded.seconds - BEFORE_SECONDS:.0f} s")
    loaded.finish()


def nothing_ran_twice(inference: Inference) -> None:
    reasons = rerun_requests(inference)
    print(f"sent to a second pod: {reasons}")
    assert reasons.get("connection_lost", 0) == 0, reasons


def other_node() -> str:
    [node] = Kubectl().list("nodes", f"slimscale.dev/pool={OTHER_NODE}")
    return str(node["metadata"]["name"])


def test_a_rolling_update_of_a_pool(fashion: Inference) -> None:
    under_load(fashion, lambda: roll(fashion))
    nothing_ran_twice(fashion)


def test_a_pod_that_is_deleted(fashion: Inference) -> None:
    under_load(fashion, lambda: delete_pod(fashion))
    nothing_ran_twice(fashion)


def test_a_pod_that_is_deleted_without_a_grace_period(fashion: Inference) -> None:
    under_load(fashion, lambda: delete_pod(fashion, force=True))


@pytest.mark.parametrize("container", ["model-server", "batcher"])
def test_a_killed_container_of_a_pool(fashion: Inference, container: str) -> None:
    under_load(fashion, lambda: kill(fashion, "pool", container))


@pytest.mark.parametrize("container", ["model-server", "batcher"])
def test_a_killed_container_of_the_only_pod(
    serving: Cluster, kubectl: Kubectl, container: str
) -> None:
    """There is no other pod: requests wait for this one."""
    kubectl.apply(service(1))
    inference = Inference(kubectl)
    all_ready(inference, "pool", 1)
    all_ready(inference, "router", 2)
    under_load(inference, lambda: kill(inference, "pool", container), deadline_seconds=30.0)


def test_a_killed_router(fashion: Inference) -> None:
    under_load(fashion, lambda: kill(fashion, "router", "router"), resend_cut=True)


def test_a_router_that_is_deleted(fashion: Inference) -> None:
    under_load(fashion, lambda: delete_pod(fashion, "router"))
    nothing_ran_twice(fashion)


def test_a_killed_operator(serving: Cluster, fashion: Inference) -> None:
    before = {pod.uid for pod in ready_pods(fashion)}
    under_load(fashion, lambda: kill_operator(serving.operator))
    nothing_ran_twice(fashion)
    assert {pod.uid for pod in ready_pods(fashion)} == before


def test_a_drained_node(fashion: Inference) -> None:
    def drain() -> None:
        with drained(other_node()):
            all_ready(fashion, "pool", 2)
            all_ready(fashion, "router", 2)

    under_load(fashion, drain)
    nothing_ran_twice(fashion)


def gone_to_zero(inference: Inference) -> None:
    def empty() -> bool:
        return not inference.pods("pool")

    eventually(empty, 240, what="the pool is empty")


def test_scaled_to_zero_and_back_the_first_requests_wait_and_are_answered(
    serving: Cluster, kubectl: Kubectl
) -> None:
    kubectl.apply(service(0))
    inference = Inference(kubectl)
    with load_on(inference, steady(RATE, 20), deadline_seconds=FROM_ZERO_DEADLINE_SECONDS) as first:
        pass
    first.finish()
    gone_to_zero(inference)
    again = LoadPod(
        kubectl,
        images.built_references()["dataplane"],
        make_plan("again", steady(RATE, 40), deadline_seconds=FROM_ZERO_DEADLINE_SECONDS),
        name="again",
    )
    again.start()
    run = again.finish()
    counted = tally(run, len(again.plan["arrivals"]))
    print(counted)
    assert counted.flawless, str(counted)
    assert min(run.ended, key=lambda one: one.number).milliseconds > 500, "nothing had to wait"
    nothing_ran_twice(inference)


GAP_SECONDS = 60.0
PART_SECONDS = (210.0, 90.0)


@pytest.mark.timeout(1200, func_only=True)
def test_all_of_it_in_one_go_for_five_minutes(serving: Cluster, fashion: Inference) -> None:
    """300 s at 50 a second; a pause before the last 90 s lets the pool go to zero."""
    first, second = PART_SECONDS
    later = [first + GAP_SECONDS + at for at in steady(RATE, second)]
    killed_at = float("nan")
    happened: list[tuple[float, str]] = []
    with load_on(
        fashion,
        steady(RATE, first) + later,
        deadline_seconds=FROM_ZERO_DEADLINE_SECONDS,
        resend_cut=True,
    ) as loaded:
        steps: list[tuple[str, Callable[[], None]]] = [
            ("rolling update", partial(roll, fashion)),
            ("pod deleted", partial(delete_pod, fashion)),
            ("model server killed", partial(kill, fashion, "pool", "model-server")),
            ("sidecar killed", partial(kill, fashion, "pool", "batcher")),
            ("router killed", partial(kill, fashion, "router", "router")),
            ("operator killed", partial(kill_operator, serving.operator)),
            ("node drained", partial(_drain_and_return, fashion)),
        ]
        for name, step in steps:
            happened.append((loaded.seconds, name))
            if name == "router killed":
                killed_at = loaded.seconds
            step()
        happened.append((loaded.seconds, "allowed to become empty"))
        scale_pool(fashion, minReplicas=0)
        assert loaded.seconds < first, happened
        gone_to_zero(fashion)
        happened.append((loaded.seconds, "empty"))
        assert loaded.seconds < first + GAP_SECONDS, happened
    run = loaded.finish()
    print(*(f"{at:.0f} s: {name}" for at, name in happened), sep="\n")
    cut = [one.due_seconds for one in run.ended if one.resent]
    assert all(abs(at - killed_at) < KILLED_ROUTER_SECONDS for at in cut), (killed_at, cut)


def _drain_and_return(inference: Inference) -> None:
    with drained(other_node()):
        all_ready(inference, "pool", 2)
        all_ready(inference, "router", 2)
