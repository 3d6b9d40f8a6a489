"""Fixtures of the end-to-end tests; without --with-e2e every test here is skipped.

A test gets a fresh namespace in a cluster where the chart has installed the operator. What a failed
test leaves behind is written to e2e/.state/artifacts/ before its namespace goes.
"""

import re
import secrets
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import pytest

from e2e import artifacts, images, install
from e2e.cluster import kind
from e2e.helm import Helm
from e2e.kubectl import Kubectl

FAILED = pytest.StashKey[bool]()
#: For a test's own time, without set-up: making a cluster from nothing takes many minutes.
TEST_TIMEOUT_SECONDS = 600
#: Of the data plane, for the tests that serve.
INFERENCE_IMAGES = ("dataplane", "modelserver")


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster with the operator in it."""

    images: dict[str, str]
    helm: Helm
    operator: Kubectl


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the end-to-end tests."""
    group = parser.getgroup("e2e")
    group.addoption("--with-e2e", action="store_true", help="run the tests that need a cluster")
    group.addoption(
        "--keep-cluster",
        action="store_true",
        help="leave cluster, operator and namespaces of failed tests as they are at the end",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this folder; skip them unless asked for."""
    skip = pytest.mark.skip(reason="needs a kind cluster: make e2e, or pytest e2e --with-e2e")
    for item in items:
        if not item.path.is_relative_to(config.rootpath / "e2e"):
            continue
        item.add_marker(pytest.mark.e2e)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_SECONDS, func_only=True))
        if not config.getoption("--with-e2e"):
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember a failure until the fixtures are torn down."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The cluster, with every image loaded and the chart installed; once for all tests."""
    before = kind.current()
    was_up = before is not None and not kind.problem(before)
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        loaded = install.prepare()
        operator = install.install(loaded["operator"])
    yield Cluster(loaded, Helm(install.NAMESPACE), operator)
    # a cluster that was there before is somebody's: only what these tests made is taken away
    if not request.config.getoption("--keep-cluster") and not was_up:
        kind.down()


@pytest.fixture(scope="module")
def serving(cluster: Cluster) -> Iterator[Cluster]:
    """The operator, told which images router and pools have."""
    built = images.build(INFERENCE_IMAGES)
    images.load(built[name] for name in INFERENCE_IMAGES)
    values = {
        "inference": {
            "dataplaneImage": built["dataplane"],
            "modelserverImage": built["modelserver"],
            "scalingIntervalSeconds": 2,
        }
    }
    install.install(cluster.images["operator"], values)
    yield cluster
    install.install(cluster.images["operator"])


@pytest.fixture
def kubectl(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl in a fresh namespace whose pods must be as restricted as Kubernetes can ask for."""
    word = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    namespace = f"{word}-{secrets.token_hex(3)}"
    everywhere = Kubectl()
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": namespace, "labels": labels}
    everywhere.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    yield everywhere.within(namespace)
    failed = request.node.stash.get(FAILED, False)
    if failed:
        where = artifacts.dump(request.node.name, namespace, install.NAMESPACE)
        print(f"what was there at the end: {where}")
        if request.config.getoption("--keep-cluster"):
            return
    # waits: something that blocks the deletion of a namespace is a fault of the operator
    everywhere.delete("namespace", namespace, "--timeout=50s")


@pytest.fixture
def namespace(kubectl: Kubectl) -> str:
    """The name of the test's own namespace."""
    return kubectl.namespace
