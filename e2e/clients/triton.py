"""`triton.py URL`: what tritonclient makes of the router. Rows come by standard input."""

import json
import sys
from typing import Any

import numpy as np
import tritonclient.http as triton  # type: ignore[import-not-found]  # an environment of its own
from tritonclient.utils import InferenceServerException  # type: ignore[import-not-found]

MODEL = "fashion"


def infer(client: Any, rows: Any, *, binary: bool, name: str = "image", model: str = MODEL) -> Any:
    tensor = triton.InferInput(name, list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows, binary_data=binary)
    wanted = triton.InferRequestedOutput("logits", binary_data=binary)
    return client.infer(model, [tensor], outputs=[wanted], request_id=f"triton-{binary}")


def failure(work: Any) -> dict[str, str]:
    try:
        work()
    except InferenceServerException as error:
        return {"status": str(error.status()), "message": str(error.message())}
    return {}


def main(url: str) -> dict[str, Any]:
    rows = np.asarray(json.load(sys.stdin)["rows"], dtype=np.float32)
    client = triton.InferenceServerClient(url.removeprefix("http://"))
    found: dict[str, Any] = {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": client.is_model_ready(MODEL),
        "other_ready": client.is_model_ready("other"),
        "server": client.get_server_metadata(),
        "model": client.get_model_metadata(MODEL),
    }
    for kind, binary in (("binary", True), ("json", False)):
        answer = infer(client, rows, binary=binary)
        found[kind] = {
            "id": answer.get_response()["id"],
            "width": answer.get_response()["model_name"],
            "logits": answer.as_numpy("logits").tolist(),
        }
    waiting = client.async_infer(MODEL, [_whole(rows)])
    found["async"] = waiting.get_result().as_numpy("logits").tolist()
    found["errors"] = {
        "unknown_model": failure(lambda: infer(client, rows, binary=True, model="other")),
        "unknown_input": failure(lambda: infer(client, rows, binary=True, name="picture")),
        "wrong_shape": failure(lambda: infer(client, rows[:, :, :27], binary=True)),
        "not_finite": failure(lambda: infer(client, rows * np.nan, binary=True)),
    }
    client.close()
    return found


def _whole(rows: Any) -> Any:
    tensor = triton.InferInput("image", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)
    return tensor


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
