"""Small trained weights that the operator ships: safetensors with a JSON card each."""

import json
from collections.abc import Mapping
from importlib import resources

__all__ = ["read_weights"]


def read_weights(name: str) -> tuple[bytes, Mapping[str, object]] | None:
    """The bytes of `name`.safetensors and its card; None where either is missing or no JSON."""
    folder = resources.files(__name__)
    try:
        card = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        data = (folder / f"{name}.safetensors").read_bytes()
    except (OSError, ValueError):
        return None
    return (data, card) if isinstance(card, dict) else None
