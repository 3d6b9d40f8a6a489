"""Brings the cluster up, puts the images in, installs the operator with its chart."""

import json
from typing import Any

from e2e import images
from e2e.cluster import kind
from e2e.eventually import eventually
from e2e.helm import Helm
from e2e.kubectl import Kubectl

RELEASE = "slimscale"
NAMESPACE = "slimscale"
OPERATOR_ACCOUNT = f"system:serviceaccount:{NAMESPACE}:slimscale-operator"
IMAGES = ("operator", "simserver", "prometheus")
"""What the tests run; the others have no pod here."""


def image_values(reference: str) -> dict[str, Any]:
    """The chart's values for an image that is loaded, not pulled."""
    repository, tag = reference.rsplit(":", 1)
    return {"repository": repository, "tag": tag, "pullPolicy": "IfNotPresent"}


def prepare(names: tuple[str, ...] = IMAGES) -> dict[str, str]:
    """Cluster and images; return name -> image reference in the nodes."""
    kind.up()
    built = images.build(names)
    wanted = {name: built[name] for name in names}
    images.load(wanted.values())
    return wanted


def install(operator_image: str, values: dict[str, Any] | None = None) -> Kubectl:
    """Install or upgrade the operator; wait until it is ready."""
    settings = {"image": image_values(operator_image), **(values or {})}
    Helm(NAMESPACE).install(RELEASE, settings)
    if settings.get("webhook", {}).get("enabled", True):
        # The pod is ready; its address and its CA have yet to reach API server and nodes.
        eventually(lambda: webhook_answers(Kubectl()), 30, what="the webhook answers")
    return Kubectl(NAMESPACE)


def webhook_answers(kubectl: Kubectl) -> bool:
    """Whether a pod made now in this namespace would pass through the webhook; none is made."""
    secure = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"name": "trial", "image": "localhost/none:none", "securityContext": secure}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "webhook-trial", "labels": {"slimscale.dev/inject": "true"}},
        "spec": {"containers": [container]},
    }
    tried = kubectl.run(
        *("create", "-f", "-", "--dry-run=server", "-o", "json"), stdin=json.dumps(pod)
    )
    return "slimscale.dev/injected" in json.loads(tried)["metadata"].get("annotations", {})
