"""LitServe in front of the same ONNX file.

`python litserve_app.py MODEL PORT ROWS WAIT_SECONDS plain|fast`; fast is LitServe's option `fast_queue`.
"""

import sys
from typing import Any

import litserve  # type: ignore[import-not-found,unused-ignore]
import numpy as np
import onnxruntime


class OnnxApi(litserve.LitAPI):  # type: ignore[misc,unused-ignore]
    """One v2 request in, one v2 answer out; LitServe makes the batches."""

    model_file: str

    def setup(self, device: str) -> None:  # noqa: ARG002 - LitServe's signature
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            self.model_file, options, providers=["CPUExecutionProvider"]
        )

    def decode_request(self, request: dict[str, Any]) -> tuple[str, Any]:
        tensor = request["inputs"][0]
        rows = np.asarray(tensor["data"], dtype=np.float32).reshape(tensor["shape"])
        return request["id"], rows[0]

    def batch(self, inputs: list[tuple[str, Any]]) -> tuple[list[str], Any]:
        return [name for name, _ in inputs], np.stack([row for _, row in inputs])

    def predict(self, batch: tuple[list[str], Any]) -> tuple[list[str], Any]:
        names, rows = batch
        return names, self.session.run(None, {"image": rows})[0]

    def unbatch(self, output: tuple[list[str], Any]) -> list[tuple[str, Any]]:
        return list(zip(output[0], output[1], strict=True))

    def encode_response(self, output: tuple[str, Any]) -> dict[str, Any]:
        name, logits = output
        data = logits.tolist()
        return {
            "id": name,
            "outputs": [
                {"name": "logits", "datatype": "FP32", "shape": [1, len(data)], "data": data}
            ],
        }


def main() -> None:
    model, port, rows, wait_seconds, queue = sys.argv[1:6]
    api = OnnxApi(max_batch_size=int(rows), batch_timeout=float(wait_seconds))
    api.model_file = model  # on the instance: it is what the worker process gets
    server = litserve.LitServer(
        api, accelerator="cpu", workers_per_device=1, timeout=60, fast_queue=queue == "fast"
    )
    server.run(
        host="127.0.0.1",
        port=int(port),
        log_level="warning",
        generate_client_file=False,
        access_log=False,
    )


if __name__ == "__main__":
    main()
