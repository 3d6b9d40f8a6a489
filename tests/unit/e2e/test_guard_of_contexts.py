import pytest

from e2e.guard import NotATestCluster, require_kind_context
from e2e.helm import Helm
from e2e.kubectl import Kubectl

SOMEBODYS = [
    "",
    "kind",
    "kind-",
    "KIND-e2e",
    " kind-e2e",
    "production",
    "my-kind-cluster",
    "gke_project_zone_kind-e2e",
    "minikube",
]


@pytest.mark.parametrize("context", SOMEBODYS)
def test_a_context_that_is_not_kinds_is_refused_by_name(context: str) -> None:
    with pytest.raises(NotATestCluster, match="only touch kind clusters") as refused:
        require_kind_context(context)
    assert repr(context) in str(refused.value)


def test_a_kind_context_passes_unchanged() -> None:
    assert require_kind_context("kind-slimscale-e2e") == "kind-slimscale-e2e"


@pytest.mark.parametrize("context", SOMEBODYS)
@pytest.mark.parametrize("wrapper", [Kubectl, Helm])
def test_no_command_can_be_built_for_somebodys_cluster(
    wrapper: type[Kubectl] | type[Helm], context: str
) -> None:
    with pytest.raises(NotATestCluster):
        wrapper(context=context)


def test_kubectl_always_names_its_context_and_never_reads_the_users_kubeconfig() -> None:
    command = Kubectl(context="kind-x").command("get", "pods")
    assert command[command.index("--context") + 1] == "kind-x"
    assert "--kubeconfig" in command
    assert ".kube" not in command[command.index("--kubeconfig") + 1]
