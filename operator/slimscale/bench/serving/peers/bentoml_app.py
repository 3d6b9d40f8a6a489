"""BentoML in front of the same ONNX file, with its adaptive batching. Served by `bentoml serve`.

Environment: BENCH_MODEL, BENCH_ROWS, BENCH_LATENCY_MILLISECONDS.
"""

import os
from typing import Annotated

import bentoml  # type: ignore[import-not-found,unused-ignore]
import numpy as np
import onnxruntime

Images = Annotated[np.ndarray, bentoml.validators.DType("float32")]


@bentoml.service(
    workers=1,
    threads=1,
    traffic={"timeout": 60, "max_concurrency": 4096},
    metrics={"enabled": False},
    logging={"access": {"enabled": False}},
)  # type: ignore[misc,unused-ignore]
class Classifier:
    """`{"image": rows}` in, rows of logits out: batching endpoints take one batched parameter."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            os.environ["BENCH_MODEL"], options, providers=["CPUExecutionProvider"]
        )

    @bentoml.api(
        batchable=True,
        batch_dim=0,
        max_batch_size=int(os.environ.get("BENCH_ROWS", "32")),
        max_latency_ms=int(os.environ.get("BENCH_LATENCY_MILLISECONDS", "60000")),
    )  # type: ignore[untyped-decorator,unused-ignore]
    def infer(self, image: Images) -> Images:
        logits: Images = self.session.run(None, {"image": image})[0]
        return logits
