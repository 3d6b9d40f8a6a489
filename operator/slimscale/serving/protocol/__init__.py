"""The Open Inference Protocol, version 2, over HTTP: JSON and the binary tensor extension.

`requests` reads what clients send, `responses` writes what they get, `backend` is the other side of it
(asking a model server), `paths` names the resources, `errors` the refusals.
"""

from slimscale.serving.protocol.backend import encode_batch, encode_request, parse_response
from slimscale.serving.protocol.errors import InvalidRequest, error_response
from slimscale.serving.protocol.metadata import ModelMetadata, TensorSpec
from slimscale.serving.protocol.paths import Endpoint, Resource, parse_path
from slimscale.serving.protocol.requests import InferRequest, OutputWish, parse_request, peek_rows
from slimscale.serving.protocol.responses import encode_response, json_response, select_outputs
from slimscale.serving.protocol.tensors import Tensor

__all__ = [
    "Endpoint",
    "InferRequest",
    "InvalidRequest",
    "ModelMetadata",
    "OutputWish",
    "Resource",
    "Tensor",
    "TensorSpec",
    "encode_batch",
    "encode_request",
    "encode_response",
    "error_response",
    "json_response",
    "parse_path",
    "parse_request",
    "parse_response",
    "peek_rows",
    "select_outputs",
]
