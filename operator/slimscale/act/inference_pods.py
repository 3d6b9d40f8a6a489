"""Pod templates of a SlimInference: the router's and a pool's. Fixed but for what the spec says.

Both fit the restricted Pod Security Standard and write nothing but /tmp. A pool's model server is
the native sidecar: it starts first and, since the kubelet ends native sidecars last, still answers
while the batching sidecar drains. Only the router gets a token.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from slimscale.act.inference_config import DRAIN_SECONDS
from slimscale.act.inference_names import POOL_ROLE, ROUTER_ROLE, InferenceNames
from slimscale.api.names import (
    ANNOTATION_OWNER,
    ANNOTATION_THREADS,
    DEFAULT_METRICS_PORT,
    LOADING_ANNOTATIONS,
    PODINFO_VOLUME,
    THREADS_FILE,
    THREADS_FILE_ENV,
)
from slimscale.api.serving_config import (
    CONFIG_MOUNT,
    POLICY_CARD_KEY,
    POLICY_FOLDER,
    POLICY_MOST_BYTES,
    POLICY_WEIGHTS_KEY,
    ROUTER_PORT,
    ROUTER_STATUS_PORT,
    SIDECAR_PORT,
    SIDECAR_STATUS_PORT,
)
from slimscale.api.sliminference import Pool, Resources, SlimInferenceSpec
from slimscale.kubeapi.ports import Json

__all__ = ["LOAD_SECONDS", "Images", "pool_template", "router_template"]

PRE_STOP_SECONDS = 5
"""Between "no new requests" in the EndpointSlice and SIGTERM: the time routers need to hear it."""
GRACE_SECONDS = PRE_STOP_SECONDS + DRAIN_SECONDS + 15
"""Longer than waiting and draining together, so that nothing is cut off."""
LOAD_SECONDS = 600
"""Within which a model server must have loaded and warmed its first models."""
_GPU = "nvidia.com/gpu"
_MODELS = "/models"
_USER = 65532
_TMP = "/tmp"  # noqa: S108 - a volume of the pod's own, the one place that can be written


@dataclass(frozen=True, slots=True)
class Images:
    """The operator's settings: of router and batching sidecar, and of the model server."""

    dataplane: str
    modelserver: str
    pull_policy: str = "IfNotPresent"


def router_template(
    spec: SlimInferenceSpec, *, names: InferenceNames, images: Images, account: str
) -> Json:
    """The router's pods: the only ones that talk to the API server."""
    volume = _config_volume(names, "router.json")
    policy = spec.routing.learned.policy_config_map
    if policy is not None:
        volume["projected"]["sources"].append(_policy_source(policy))
    container = _container(
        "router", images.dataplane, images, ["python", "-m", "slimscale.serving.router"]
    ) | {
        "ports": [
            {"name": "http", "containerPort": ROUTER_PORT},
            {"name": "status", "containerPort": ROUTER_STATUS_PORT},
        ],
        "env": _environment(),
        "resources": _resources(
            spec.router.resources, cpu="100m", memory="128Mi",
            memory_limit=_mebibytes(_router_bytes(spec)),
        ),
        **_probes(ROUTER_STATUS_PORT),
        "volumeMounts": [_mount(PODINFO_VOLUME, CONFIG_MOUNT), _mount("tmp", _TMP, write=True)],
    }  # fmt: skip
    pod = _pod(spec, {PODINFO_VOLUME: volume})
    pod |= {
        "serviceAccountName": account,
        "automountServiceAccountToken": True,
        "containers": [container],
        "topologySpreadConstraints": [_spread(names.role_selector(ROUTER_ROLE))],
    }
    return _template(names, names.labels(ROUTER_ROLE), pod)


def pool_template(
    spec: SlimInferenceSpec, pool: Pool, *, names: InferenceNames, images: Images
) -> Json:
    """A pool's pods: model server first, batching sidecar in front of it."""
    volumes = {PODINFO_VOLUME: _config_volume(names, "sidecar.json", "modelserver.json")}
    claim = spec.model.source.persistent_volume_claim
    if claim is not None:
        volumes["models"] = {
            "persistentVolumeClaim": {"claimName": claim.claim_name, "readOnly": True}
        }
    pod = _pod(spec, volumes)
    pod |= {
        "automountServiceAccountToken": False,
        "initContainers": [_model_server(spec, pool, images)],
        "containers": [_sidecar(spec, pool, images)],
        "topologySpreadConstraints": [_spread(names.role_selector(POOL_ROLE, pool.name))],
    }
    if pool.node_selector:
        pod["nodeSelector"] = dict(pool.node_selector)
    if pool.tolerations:
        pod["tolerations"] = [_toleration(entry) for entry in pool.tolerations]
    template = _template(names, names.labels(POOL_ROLE, pool.name), pod)
    template["metadata"]["annotations"] |= LOADING_ANNOTATIONS
    return template


def _model_server(spec: SlimInferenceSpec, pool: Pool, images: Images) -> Json:
    source = spec.model.source
    environment = [
        *_environment(),
        {"name": "SLIMSCALE_POOL", "value": pool.name},
        {"name": THREADS_FILE_ENV, "value": THREADS_FILE},
    ]
    if _GPU in pool.resources.limits:
        # utility: else the container gets no NVML, and memory and utilisation stay unknown
        environment.append({"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"})
    mounts = [_mount(PODINFO_VOLUME, CONFIG_MOUNT), _mount("tmp", _TMP, write=True)]
    if source.persistent_volume_claim is not None:
        models = _mount("models", _MODELS)
        if source.persistent_volume_claim.sub_path:
            models["subPath"] = source.persistent_volume_claim.sub_path
        mounts.append(models)
    return _container(
        "model-server",
        source.image or images.modelserver,
        images,
        ["python", "-m", "slimscale.serving.modelserver"],
    ) | {
        "restartPolicy": "Always",
        "env": environment,
        "resources": _resources(pool.resources, cpu="500m", memory="512Mi"),
        "ports": [{"name": "metrics", "containerPort": DEFAULT_METRICS_PORT}],
        # The models' own port is on the pod's loopback, which the kubelet does not reach.
        "startupProbe": _get("/readyz", DEFAULT_METRICS_PORT, period_seconds=2)
        | {"failureThreshold": LOAD_SECONDS // 2},
        "livenessProbe": _get("/healthz", DEFAULT_METRICS_PORT, period_seconds=10)
        | {"failureThreshold": 3},
        "volumeMounts": mounts,
    }


def _sidecar(spec: SlimInferenceSpec, pool: Pool, images: Images) -> Json:
    memory = 3 * spec.batching.queue_bytes
    return _container(
        "batcher", images.dataplane, images, ["python", "-m", "slimscale.serving.sidecar"]
    ) | {
        "ports": [
            {"name": "http", "containerPort": SIDECAR_PORT},
            {"name": "status", "containerPort": SIDECAR_STATUS_PORT},
        ],
        "env": [*_environment(), {"name": "SLIMSCALE_POOL", "value": pool.name}],
        "resources": _resources(
            Resources(), cpu="100m", memory="96Mi", memory_limit=_mebibytes(memory)
        ),
        **_probes(SIDECAR_STATUS_PORT),
        "volumeMounts": [_mount(PODINFO_VOLUME, CONFIG_MOUNT), _mount("tmp", _TMP, write=True)],
    }


def _router_bytes(spec: SlimInferenceSpec) -> int:
    """What a router may hold beside itself: requests, policies, decisions."""
    routing = spec.routing
    found = 2 * routing.buffer_bytes + 4 * routing.max_body_bytes
    if routing.learned.policy_config_map is not None:
        found += 8 * POLICY_MOST_BYTES  # file and arrays, of this policy and the one before
    if routing.decision_log.sample_percent > 0:
        found += 2 * routing.decision_log.max_bytes
    return found


def _template(names: InferenceNames, labels: Mapping[str, str], pod: Json) -> Json:
    metadata = {"labels": dict(labels), "annotations": {ANNOTATION_OWNER: names.owner}}
    return {"metadata": metadata, "spec": pod}


def _pod(spec: SlimInferenceSpec, volumes: Mapping[str, Json]) -> Json:
    pod: Json = {
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [
            *({"name": name, **volume} for name, volume in volumes.items()),
            {"name": "tmp", "emptyDir": {"sizeLimit": "256Mi"}},
        ],
    }
    if spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": entry.name} for entry in spec.image_pull_secrets]
    return pod


def _container(name: str, image: str, images: Images, command: list[str]) -> Json:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": images.pull_policy,
        "command": command,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def _environment() -> list[Json]:
    return [
        {"name": "HOME", "value": _TMP},
        {
            "name": "SLIMSCALE_POD_NAME",
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
        },
    ]


def _probes(port: int) -> Json:
    """The sidecar is alive on its own; ready only when the model server has answered."""
    return {
        "startupProbe": _get("/healthz", port, period_seconds=1) | {"failureThreshold": 60},
        "livenessProbe": _get("/healthz", port, period_seconds=10) | {"failureThreshold": 3},
        "readinessProbe": _get("/readyz", port, period_seconds=2) | {"failureThreshold": 2},
        # The address leaves the EndpointSlice first; until then requests still come, and are taken.
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
    }


def _get(path: str, port: int, *, period_seconds: int) -> Json:
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 2,
    }


def _config_volume(names: InferenceNames, *files: str) -> Json:
    """Configuration and thread count in one volume: the kubelet refreshes both at once."""
    annotation = f"metadata.annotations['{ANNOTATION_THREADS}']"
    items = [{"key": name, "path": name} for name in files]
    threads = {"path": "threads", "fieldRef": {"apiVersion": "v1", "fieldPath": annotation}}
    return {
        "projected": {
            "defaultMode": 0o444,
            "sources": [
                {"configMap": {"name": names.config, "items": items}},
                {"downwardAPI": {"items": [threads]}},
            ],
        }
    }


def _policy_source(config_map: str) -> Json:
    """Optional: without it, or with a bad one, the router starts and says so."""
    folder = POLICY_FOLDER.removeprefix(f"{CONFIG_MOUNT}/")
    items = [
        {"key": key, "path": f"{folder}/{key}"} for key in (POLICY_WEIGHTS_KEY, POLICY_CARD_KEY)
    ]
    return {"configMap": {"name": config_map, "items": items, "optional": True}}


def _mount(name: str, path: str, *, write: bool = False) -> Json:
    return {"name": name, "mountPath": path, **({} if write else {"readOnly": True})}


def _spread(labels: Mapping[str, str]) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(labels)},
    }


def _toleration(entry: object) -> Json:
    dump = entry.model_dump(by_alias=True, exclude_none=True)  # type: ignore[attr-defined]
    return {key: value for key, value in dump.items() if value != ""}


def _resources(given: Resources, *, cpu: str, memory: str, memory_limit: str = "") -> Json:
    """What is given, and a default for each request that neither a request nor a limit names."""
    limits = dict(given.limits)
    if memory_limit and "memory" not in limits:
        limits["memory"] = memory_limit
    defaults = {"cpu": cpu, "memory": memory}
    requests = {name: value for name, value in defaults.items() if name not in given.limits} | dict(
        given.requests
    )
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _mebibytes(buffered: int) -> str:
    """A limit for a process that holds this many bytes and itself."""
    return f"{192 + -(-buffered // 2**20)}Mi"
