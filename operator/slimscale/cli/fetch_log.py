"""`slimscale train fetch-log`: the decisions that routers keep, into a folder. Reads and nothing else."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import track

from slimscale.act.inference_names import ROUTER_ROLE, InferenceNames
from slimscale.api.serving_config import ROUTER_STATUS_PORT
from slimscale.exceptions import SlimError

__all__ = ["Forward", "fetch_log", "fetch_router"]

_SECONDS = 30.0
_MOST_BYTES = 2**28
_PORT = re.compile(r"127\.0\.0\.1:(\d+) ->")

Forward = Callable[[str], AbstractContextManager[str]]
"""A pod's name to the address of its status port, for as long as the block runs."""


def fetch_log(*, name: str, namespace: str, context: str, out: Path) -> int:
    """Ask every router of a SlimInference; return the number of decisions that were fetched.

    Through `kubectl port-forward`, with the caller's own rights: a NetworkPolicy keeps other ways shut.

    Raises:
        SlimError: no kubectl, no router, or none that keeps decisions; the message says which.
    """
    kubectl = [*_kubectl(), *(("--context", context) if context else ())]
    kubectl += ["--namespace", namespace] if namespace else []
    pods = _router_pods(kubectl, name)
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    found = 0
    for pod in track(pods, "asking routers", console=console):
        found += fetch_router(pod, lambda one: _forwarded(kubectl, one), out)
    console.print(f"{found} decisions of {len(pods)} routers in {out}")
    return found


def fetch_router(pod: str, forward: Forward, out: Path) -> int:
    """All segments of one router, as `POD-NUMBER.safetensors`; a later fetch overwrites them."""
    with forward(pod) as address:
        index = json.loads(_read(f"{address}/decisions", pod))
        found = 0
        for segment in index["segments"]:
            number = int(segment["segment"])
            data = _read(f"{address}/decisions?segment={number}", pod)
            (out / f"{pod}-{number}.safetensors").write_bytes(data)
            found += int(segment["decisions"])
    return found


def _kubectl() -> Sequence[str]:
    found = shutil.which("kubectl")
    if found is None:
        raise SlimError("kubectl is not on the path; install it, it forwards the routers' ports")
    return [found]


def _router_pods(kubectl: Sequence[str], name: str) -> list[str]:
    labels = InferenceNames(name).role_selector(ROUTER_ROLE)
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    template = "{range .items[*]}{.metadata.name}{'\\n'}{end}"
    command = [
        *kubectl, "get", "pods", "--selector", selector,
        "--field-selector", "status.phase=Running", "--output", f"jsonpath={template}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SlimError(f"kubectl get pods: {done.stderr.strip()[:300]}")
    pods = done.stdout.split()
    if not pods:
        raise SlimError(f"SlimInference {name} has no running router here; is the namespace right?")
    return pods


@contextmanager
def _forwarded(kubectl: Sequence[str], pod: str) -> Iterator[str]:
    command = [*kubectl, "port-forward", f"pod/{pod}", f":{ROUTER_STATUS_PORT}"]
    command += ["--address", "127.0.0.1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout is not None else ""
            port = _PORT.search(line)
            if port is None:
                raise SlimError(f"kubectl port-forward pod/{pod}: {line.strip()[:300]}")
            yield f"http://127.0.0.1:{port[1]}"
        finally:
            process.terminate()


def _read(url: str, pod: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:  # noqa: S310 - loopback
            data: bytes = answer.read(_MOST_BYTES)
            return data
    except urllib.error.HTTPError as error:
        words = error.read(500).decode("utf-8", "replace")
        raise SlimError(f"router {pod}: {error.code}: {words}") from None
    except OSError as error:
        raise SlimError(f"router {pod} does not answer: {error}") from None
