"""onnxruntime behind HTTP without batching: what a service can do that sends each request alone.

`python -m slimscale.bench.serving.servers.direct --model FILE --port N`. The session runs in the event loop: with one
model thread nothing could be won elsewhere, and one client sees the least latency.
"""

import argparse
import asyncio
import json
from typing import Any

import onnxruntime
import uvloop

from slimscale.bench.serving.model import CLASSES, IMAGE_SHAPE
from slimscale.bench.serving.servers.tensors import answer, read
from slimscale.serving.http import HttpServer, Request, Response, text_response

__all__ = ["main"]


def _session(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _metadata(name: str) -> dict[str, Any]:
    """What a batcher in front of this server asks for: one model, always loaded."""
    tensor = {"datatype": "FP32"}
    return {
        "name": name,
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "image", "shape": [-1, *IMAGE_SHAPE], **tensor}],
        "outputs": [{"name": "logits", "shape": [-1, CLASSES], **tensor}],
    }


async def serve(path: str, port: int, name: str) -> None:
    session = _session(path)
    source = session.get_inputs()[0].name
    ready = text_response(200, "ready\n")
    about = Response(200, json.dumps(_metadata(name)).encode())

    def handle(request: Request) -> Response:
        if request.method == b"GET":
            return about if request.path == f"/v2/models/{name}" else ready
        if request.path.startswith("/v2/repository/"):
            return ready
        try:
            asked = read(request)
            (logits,) = session.run(None, {source: asked.rows})
        except (ValueError, KeyError, IndexError) as error:
            return text_response(400, f"{error}\n")
        return answer(asked, logits, model=name)

    server = HttpServer(handle, name="direct")
    await server.start("127.0.0.1", port)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", default="model")
    options = parser.parse_args()
    uvloop.run(serve(options.model, options.port, options.name))


if __name__ == "__main__":
    main()
