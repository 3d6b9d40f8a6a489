"""`kserve_rest.py URL`: what KServe's client makes of the router. Rows come by standard input."""

import asyncio
import json
import sys
from typing import Any

import httpx  # type: ignore[import-not-found]  # an environment of its own
import numpy as np
from kserve import (  # type: ignore[import-not-found]
    InferenceRESTClient,
    InferInput,
    InferRequest,
    RESTConfig,
)

MODEL = "fashion"


def request(rows: Any, *, binary: bool, name: str = "image") -> Any:
    tensor = InferInput(name=name, shape=list(rows.shape), datatype="FP32")
    tensor.set_data_from_numpy(rows, binary_data=binary)
    return InferRequest(model_name=MODEL, infer_inputs=[tensor], request_id=f"kserve-{binary}")


async def failure(work: Any) -> dict[str, str]:
    try:
        await work
    except httpx.HTTPStatusError as error:
        return {"status": str(error.response.status_code), "message": str(error)}
    return {}


async def main(url: str) -> dict[str, Any]:
    rows = np.asarray(json.load(sys.stdin)["rows"], dtype=np.float32)
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    found: dict[str, Any] = {
        "live": await client.is_server_live(url),
        "ready": await client.is_server_ready(url),
        "model_ready": await client.is_model_ready(url, MODEL),
        "other_ready": await client.is_model_ready(url, "other"),
    }
    for kind, binary in (("binary", True), ("json", False)):
        answer = await client.infer(url, request(rows, binary=binary), model_name=MODEL)
        found[kind] = {
            "id": answer.id,
            "width": answer.model_name,
            "logits": answer.outputs[0].as_numpy().tolist(),
        }
    cases = {
        "unknown_model": (rows, "image", "other"),
        "unknown_input": (rows, "picture", MODEL),
        "wrong_shape": (rows[:, :, :27], "image", MODEL),
        "not_finite": (rows * np.nan, "image", MODEL),
    }
    found["errors"] = {
        case: await failure(
            client.infer(url, request(given, binary=True, name=name), model_name=model)
        )
        for case, (given, name, model) in cases.items()
    }
    await client.close()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1]))))
