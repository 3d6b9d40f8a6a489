"""Versions of everything the test cluster is made of, in this one place."""

from dataclasses import dataclass

KUBERNETES = "v1.35.4"
CONTAINERD = "v2.4.2"
COREDNS = "v1.14.7"
KIND = "v0.33.0"
HELM = "v4.3.1"
KARPENTER = "v1.13.0"
KWOK = "v0.8.0"

#: Debian release of every root file system.
SUITE = "bookworm"

#: The node image of kind's own releases, used where an image registry is reached.
OFFICIAL_NODE_IMAGE = "docker.io/kindest/node:v1.35.0"
OFFICIAL_PYTHON = "docker.io/library/python:3.11-slim"
OFFICIAL_DEBIAN = "docker.io/library/debian:bookworm-slim"

LOCAL_NODE_IMAGE = f"localhost/slimscale-node:{KUBERNETES}"
LOCAL_PYTHON = "localhost/slimscale-python:3.11"
LOCAL_DEBIAN = f"localhost/slimscale-debian:{SUITE}"


@dataclass(frozen=True, slots=True)
class Program:
    """A Go program; with an empty version it is whatever its module asks for."""

    name: str
    package: str
    version: str = ""
    ldflags: str = ""


@dataclass(frozen=True, slots=True)
class Module:
    """Programs that share one Go module, so that versions of others don't pull on theirs."""

    name: str
    path: str
    version: str
    programs: tuple[Program, ...]
    #: k8s.io/kubernetes replaces its staging modules by folders of its repository, which the
    #: published module lacks: they are replaced by the published modules of the same release.
    staging: bool = False


def _kubernetes_ldflags() -> str:
    major, minor, _ = KUBERNETES.removeprefix("v").split(".")
    version = "k8s.io/component-base/version"
    return " ".join(
        (
            f"-X {version}.gitVersion={KUBERNETES}",
            f"-X {version}.gitMajor={major}",
            f"-X {version}.gitMinor={minor}",
            f"-X k8s.io/client-go/pkg/version.gitVersion={KUBERNETES}",
        )
    )


def _kubernetes(*names: str) -> tuple[Program, ...]:
    return tuple(
        Program(name, f"k8s.io/kubernetes/cmd/{name}", KUBERNETES, _kubernetes_ldflags())
        for name in names
    )


CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")

MODULES = (
    Module("kind", "sigs.k8s.io/kind", KIND, (Program("kind", "sigs.k8s.io/kind", KIND),)),
    Module(
        "kubernetes",
        "k8s.io/kubernetes",
        KUBERNETES,
        (
            *_kubernetes("kubectl", "kubeadm", "kubelet", "kube-proxy", *CONTROL_PLANE),
            Program("etcd", "go.etcd.io/etcd/server/v3"),
        ),
        staging=True,
    ),
    Module(
        "containerd",
        "github.com/containerd/containerd/v2",
        CONTAINERD,
        tuple(
            Program(name, f"github.com/containerd/containerd/v2/cmd/{name}", CONTAINERD)
            for name in ("containerd", "ctr", "containerd-shim-runc-v2")
        ),
    ),
    Module(
        "coredns",
        "github.com/coredns/coredns",
        COREDNS,
        (Program("coredns", "github.com/coredns/coredns", COREDNS),),
    ),
    Module("helm", "helm.sh/helm/v4", HELM, (Program("helm", "helm.sh/helm/v4/cmd/helm", HELM),)),
)

#: Node autoscaling for one test: Karpenter with simulated nodes, and what plays their kubelets.
NODE_AUTOSCALER = (
    Module(
        "karpenter",
        "sigs.k8s.io/karpenter",
        KARPENTER,
        (Program("karpenter-kwok", "sigs.k8s.io/karpenter/kwok", KARPENTER),),
    ),
    Module("kwok", "sigs.k8s.io/kwok", KWOK, (Program("kwok", "sigs.k8s.io/kwok/cmd/kwok", KWOK),)),
)

#: What the tests themselves call; enough where the node image comes from a registry.
CLIENTS = ("kind", "kubectl", "helm")
