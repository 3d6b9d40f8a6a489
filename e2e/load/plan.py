"""What a load pod is to send, and what each width answers to it: computed here, from the same files."""

import base64
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from e2e.paths import ROOT

__all__ = ["WEIGHTS", "known_answers", "make_plan", "steady"]

WEIGHTS = ROOT / "operator/slimscale/weights/fashion"
ROW_SHAPE = (1, 28, 28)
INPUTS = 32
_SEED = 2026


def make_plan(
    name: str,
    arrivals: Sequence[float],
    *,
    host: str = "fashion",
    model: str = "fashion",
    rows: int = 1,
    json_every: int = 4,
    deadline_seconds: float = 15.0,
    resend_cut: bool = False,
) -> dict[str, Any]:
    """For `driver.py`. `arrivals`: seconds from the start, ascending. `name` begins each request's id.
    `rows` of each request; one request in `json_every` is JSON, the others carry binary tensors.
    """
    return {
        "name": name,
        "host": host,
        "port": 80,
        "path": f"/v2/models/{model}/infer",
        "deadline_seconds": deadline_seconds,
        "resend_cut": resend_cut,
        "input": "image",
        "output": "logits",
        "row_shape": list(ROW_SHAPE),
        "rows": rows,
        "json_every": json_every,
        "inputs": [
            {"row": base64.b64encode(row.astype("<f4").tobytes()).decode(), "logits": logits}
            for row, logits in known_answers()
        ],
        "arrivals": [round(float(at), 3) for at in arrivals],
    }


def steady(rate: float, seconds: float) -> list[float]:
    """Evenly spaced arrivals at `rate` a second."""
    return [number / rate for number in range(round(rate * seconds))]


def _inputs() -> list[NDArray[np.float32]]:
    """Blobs on black, as clothes are: unlike each other, the same in every run."""
    rng = np.random.default_rng(_SEED)
    x, y = np.meshgrid(np.arange(28), np.arange(28))
    found = []
    for _ in range(INPUTS):
        image = np.zeros((28, 28))
        for _ in range(5):
            centre, radius = rng.uniform(5, 23, 2), rng.uniform(2, 7)
            inside = (x - centre[0]) ** 2 + (y - centre[1]) ** 2 < radius**2
            image = np.maximum(image, rng.uniform(0.3, 1.0) * inside)
        found.append(image.astype(np.float32).reshape(1, *ROW_SHAPE))
    return found


@cache
def known_answers() -> list[tuple[NDArray[np.float32], dict[str, list[float]]]]:
    """Each input, and its logits by width."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    inputs = _inputs()
    by_row: list[dict[str, list[float]]] = [{} for _ in inputs]
    for path in sorted(WEIGHTS.glob("*/model.onnx")):
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        for place, row in enumerate(inputs):
            (logits,) = session.run(None, {"image": row})
            by_row[place][path.parent.name] = [float(value) for value in logits[0]]
    return list(zip(inputs, by_row, strict=True))
