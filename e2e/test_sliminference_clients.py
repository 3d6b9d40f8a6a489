"""tritonclient and KServe's client as they come, against a router: health, metadata, infer, errors."""

from typing import Any

import numpy as np
import pytest

from e2e.clients.environment import run_client
from e2e.conftest import Cluster
from e2e.kubectl import Kubectl
from e2e.load.plan import known_answers
from e2e.sliminferences import Inference, manifest

ROWS = 3
CLIENTS = ("triton.py", "kserve_rest.py")


@pytest.fixture(scope="module")
def said(serving: Cluster) -> Any:
    """What each client reported, against one service for all tests of this file."""
    kubectl = Kubectl(namespace="clients-of-others")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": kubectl.namespace}}
    kubectl.apply(namespace)
    try:
        kubectl.apply(manifest())
        inference = Inference(kubectl)
        inference.wait_ready()
        rows = [row[0].tolist() for row, _ in known_answers()[:ROWS]]
        with inference.front_door() as door:
            yield {script: run_client(script, door, {"rows": rows}) for script in CLIENTS}
    finally:
        kubectl.delete("namespace", kubectl.namespace, "--timeout=50s")


@pytest.mark.parametrize("script", CLIENTS)
def test_health(said: Any, script: str) -> None:
    found = said[script]
    told = (found["live"], found["ready"], found["model_ready"], found["other_ready"])
    assert told == (True, True, True, False)


def test_metadata(said: Any) -> None:
    found = said["triton.py"]
    assert found["server"]["name"] == "slimscale"
    assert "binary_tensor_data" in found["server"]["extensions"]
    assert found["model"]["name"] == "fashion"
    [image] = found["model"]["inputs"]
    assert (image["name"], image["datatype"], image["shape"]) == ("image", "FP32", [-1, 1, 28, 28])
    [logits] = found["model"]["outputs"]
    assert (logits["name"], logits["datatype"], logits["shape"]) == ("logits", "FP32", [-1, 10])


@pytest.mark.parametrize("kind", ["binary", "json"])
@pytest.mark.parametrize("script", CLIENTS)
def test_inference(said: Any, script: str, kind: str) -> None:
    answer = said[script][kind]
    assert answer["id"].startswith(("triton-", "kserve-"))
    of_widths = [
        np.array([logits[width] for _, logits in known_answers()[:ROWS]])
        for width in known_answers()[0][1]
    ]
    logits = np.array(answer["logits"])
    assert any(np.allclose(logits, known, rtol=2e-3, atol=2e-3) for known in of_widths)


def test_asynchronous_inference(said: Any) -> None:
    """tritonclient's async_infer, with every output and no id."""
    assert np.array(said["triton.py"]["async"]).shape == (ROWS, 10)


@pytest.mark.parametrize(
    ("case", "status", "word"),
    [
        ("unknown_model", "404", "other"),
        ("unknown_input", "400", "exactly these tensors: image"),
        ("wrong_shape", "400", "27"),
        ("not_finite", "400", "inputs[0].data"),
    ],
)
@pytest.mark.parametrize("script", CLIENTS)
def test_errors_name_what_is_wrong(
    said: Any, script: str, case: str, status: str, word: str
) -> None:
    error = said[script]["errors"][case]
    assert status in error["status"]
    assert word in error["message"]
