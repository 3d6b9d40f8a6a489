"""`GET /decisions` on the router's status port: the log of decisions, to read and nothing else."""

from urllib.parse import parse_qs

from pydantic_core import to_json

from slimscale.serving.http import Response
from slimscale.serving.http.messages import JSON_TYPE
from slimscale.serving.protocol.errors import error_response
from slimscale.serving.router.decision_log import DecisionLog

__all__ = ["read_decisions"]

_BINARY = (b"content-type", b"application/octet-stream")


def read_decisions(log: DecisionLog | None, query: str) -> Response:
    """The index as JSON; with `segment=NUMBER` that segment as safetensors."""
    if log is None:
        return error_response(
            404,
            "no decisions are kept; set routing.policy to PPO and routing.decisionLog.samplePercent"
            " above 0",
        )
    asked = parse_qs(query).get("segment")
    if asked is None:
        return Response(200, to_json(log.index()), (JSON_TYPE,))
    data = log.segment(int(asked[0])) if asked[0].isdecimal() and len(asked[0]) < 16 else None
    if data is None:
        return error_response(404, "segment: that is not kept; see /decisions for those that are")
    return Response(200, data, (_BINARY,))
