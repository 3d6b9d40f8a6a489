"""Telemetry of a pod on the wire: compact JSON of `domain.serving.PodTelemetry` on one line."""

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from slimscale.domain.serving import PodTelemetry

__all__ = ["decode_telemetry", "encode_telemetry"]

_MOST_WIDTHS = 64
_READER = TypeAdapter(PodTelemetry)


def encode_telemetry(telemetry: PodTelemetry) -> bytes:
    """A number that is not finite becomes null: unknown."""
    return to_json(telemetry, inf_nan_mode="null")


def decode_telemetry(text: bytes) -> PodTelemetry:
    """ValueError, which names the field, for what is no telemetry. Unknown fields are skipped."""
    try:
        telemetry = _READER.validate_json(text)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, fault["loc"])) or "telemetry"
        raise ValueError(f"{field}: {fault['msg']}") from None
    if len(telemetry.widths) > _MOST_WIDTHS:
        raise ValueError(f"widths: more than {_MOST_WIDTHS}")
    return telemetry
