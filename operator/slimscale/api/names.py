"""Names that users, other tools and our own parts must agree on. Changing one is a breaking change."""

GROUP = "slimscale.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

SIMWORKLOAD_KIND = "SimWorkload"
SIMWORKLOAD_PLURAL = "simworkloads"
SLIMINFERENCE_KIND = "SlimInference"
SLIMINFERENCE_PLURAL = "sliminferences"

FIELD_MANAGER = "slimscale"
FIELD_MANAGER_INFERENCE = "slimscale-inference"
"""Of a SlimInference's children. Not the one above: a SimWorkload in mode Rollout applies a part of
a Deployment, and the same manager would thereby take away all the rest."""

SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")
"""Whose workloads are never changed, whoever asks for it; nor are those beside the operator."""

LABEL_INJECT = f"{GROUP}/inject"
"""On a pod template: `"true"` lets the webhook add thread variables and the annotation volume."""

LABEL_OWNER = f"{GROUP}/simworkload"
"""On our own children: a name derived from the owning SimWorkload, at most 63 characters."""

LABEL_INFERENCE = f"{GROUP}/sliminference"
"""On children and pods of a SlimInference: a name derived from it, at most 63 characters."""

LABEL_ROLE = f"{GROUP}/role"
"""On children and pods of a SlimInference: `router` or `pool`."""

LABEL_POOL = f"{GROUP}/pool"
"""On pods of a pool and their EndpointSlices: the pool's name."""

ANNOTATION_OWNER = f"{GROUP}/owner-name"
"""On children and pods of a SlimInference: its name, which may be longer than a label."""

ANNOTATION_CONFIG_DIGEST = f"{GROUP}/config-digest"
"""On pods of a SlimInference: of the ConfigMap. A change makes the kubelet refresh the files."""

ANNOTATION_APPLIED_DIGEST = f"{GROUP}/applied-digest"
"""On children of a SlimInference: of what the operator has asked for last."""

ANNOTATION_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Of Kubernetes: of a ReplicaSet's pods the one with the least goes first at scale-in."""

LOADING_ANNOTATIONS = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""On pods of a pool from their birth: node autoscalers leave the node alone while a model loads."""

LOADED_ANNOTATIONS = {
    "karpenter.sh/do-not-disrupt": "false",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
}
"""Written once the pod has been ready, or has taken too long: its node may go again."""

ANNOTATION_THREADS = f"{GROUP}/threads"
"""On a pod, written by the operator: how many threads its program is to use. A decimal string."""

ANNOTATION_KEPT_ENV = f"{GROUP}/kept-env"
"""On a pod, written by the webhook: thread variables the user had set himself, which were kept."""

ANNOTATION_INJECTED = f"{GROUP}/injected"
"""On a pod, written by the webhook: the container that got the variables and the volume."""

ANNOTATION_METRICS_PORT = f"{GROUP}/metrics-port"
"""On a pod, optional: the port of the program's metrics when it is not the custom resource's."""

PODINFO_VOLUME = "slimscale-podinfo"
PODINFO_MOUNT = "/etc/slimscale"
THREADS_FILE = f"{PODINFO_MOUNT}/threads"
THREADS_FILE_ENV = "SLIMSCALE_THREADS_FILE"
DEFAULT_METRICS_PORT = 9464
DEFAULT_METRICS_PATH = "/metrics"

WEBHOOK_INJECT_PATH = "/inject-pod"
WEBHOOK_VALIDATE_PATH = "/validate-simworkload"
WEBHOOK_VALIDATE_INFERENCE_PATH = "/validate-sliminference"
