"""Ray Serve in front of the same ONNX file. `python ray_app.py MODEL PORT ROWS WAIT_SECONDS`."""

import asyncio
import json
import sys
import time
from typing import Any

import numpy as np
import onnxruntime
import ray  # type: ignore[import-not-found,unused-ignore]
from ray import serve  # type: ignore[import-not-found,unused-ignore]
from starlette.requests import Request  # type: ignore[import-not-found,unused-ignore]
from starlette.responses import Response  # type: ignore[import-not-found,unused-ignore]

MODEL, PORT, ROWS, WAIT_SECONDS = sys.argv[1:5]


@serve.deployment(num_replicas=1, max_ongoing_requests=4096, ray_actor_options={"num_cpus": 0.1})  # type: ignore[misc,unused-ignore]
class Classifier:
    """One v2 request in, one v2 answer out; `serve.batch` makes the batches."""

    def __init__(self, model: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )

    @serve.batch(max_batch_size=int(ROWS), batch_wait_timeout_s=float(WAIT_SECONDS))  # type: ignore[untyped-decorator,unused-ignore]
    async def predict(self, rows: list[Any]) -> list[Any]:
        batch = np.stack(rows)
        logits = await asyncio.to_thread(self.session.run, None, {"image": batch})
        return list(logits[0])

    async def __call__(self, request: Request) -> Response:
        document = json.loads(await request.body())
        tensor = document["inputs"][0]
        rows = np.asarray(tensor["data"], dtype=np.float32).reshape(tensor["shape"])
        data = (await self.predict(rows[0])).tolist()
        output = {"name": "logits", "datatype": "FP32", "shape": [1, len(data)], "data": data}
        answer = json.dumps({"id": document["id"], "outputs": [output]})
        return Response(answer, media_type="application/json")


def main() -> None:
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=128 * 2**20,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    serve.start(http_options={"host": "127.0.0.1", "port": int(PORT), "access_log": False})
    serve.run(Classifier.bind(MODEL), route_prefix="/")  # type: ignore[attr-defined]
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main()
