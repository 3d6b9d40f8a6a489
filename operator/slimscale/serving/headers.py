"""Names of the HTTP headers that the parts of the data plane and their clients exchange.

All in lower case and bytes, as the parser of `slimscale.serving.http` hands them out. Times are in
milliseconds and relative ("what is left"): clocks of two machines are never compared.
"""

__all__ = [
    "BATCH_CAP",
    "BATCH_ROWS",
    "COMPUTE_MILLISECONDS",
    "DEADLINE_MILLISECONDS",
    "HOLD_MILLISECONDS",
    "INFERENCE_HEADER_LENGTH",
    "MIN_ACCURACY",
    "MODEL",
    "POD",
    "POOL",
    "QUEUE_MILLISECONDS",
    "REQUEST_ID",
    "RETRY_AFTER",
    "SLO",
    "TELEMETRY",
]

# ---- what a client may ask of the router
DEADLINE_MILLISECONDS = b"slimscale-deadline-ms"
"""What is left of the request's time; the router passes on what is then left."""
SLO = b"slimscale-slo"
"""Name of a class of router.json, or a number of milliseconds."""
MIN_ACCURACY = b"slimscale-min-accuracy"
"""0 to 1: no width below it."""

# ---- from router to sidecar
BATCH_CAP = b"slimscale-batch-cap"
"""Most rows of a batch that this request may be part of."""
HOLD_MILLISECONDS = b"slimscale-hold-ms"
"""How long an idle instance may wait for a fuller batch with this request in it; absent: not at all."""
REQUEST_ID = b"slimscale-request-id"

# ---- on replies
TELEMETRY = b"slimscale-telemetry"
"""Compact JSON of domain.serving.PodTelemetry."""
MODEL = b"slimscale-model"
POD = b"slimscale-pod"
POOL = b"slimscale-pool"
QUEUE_MILLISECONDS = b"slimscale-queue-ms"
COMPUTE_MILLISECONDS = b"slimscale-compute-ms"
BATCH_ROWS = b"slimscale-batch-rows"
RETRY_AFTER = b"retry-after"

# ---- of the Open Inference Protocol's binary extension
INFERENCE_HEADER_LENGTH = b"inference-header-content-length"
"""Length in bytes of the JSON in front of the binary tensors."""
