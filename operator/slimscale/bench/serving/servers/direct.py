"""onnxruntime behind HTTP without batching: what a service can do that sends each request alone.

`python -m slimscale.bench.serving.servers.direct --model FILE --port N`. The session runs in the event loop: with one
model thread nothing could be won elsewhere, and one client sees the least latency.
"""

import argparse
import asyncio

import onnxruntime
import uvloop

from slimscale.bench.serving.servers.tensors import answer, read
from slimscale.serving.http import HttpServer, Request, Response, text_response

__all__ = ["main"]


def _session(path: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


async def serve(path: str, port: int, name: str) -> None:
    session = _session(path)
    source = session.get_inputs()[0].name

    def handle(request: Request) -> Response:
        if request.method == b"GET":
            return text_response(200, "ready\n")
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
