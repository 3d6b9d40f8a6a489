"""A learned policy's file: safetensors with a JSON card, checked before anything routes by it.

    gate.start (K,), gate.slopes (K, G)    coefficients of the cell features: start + slopes g
    residual.hidden (H, K + G), residual.hidden_bias (H,), residual.out (H,)    optional

The card names the format, the version, the features in their order and, for the reader, how it was
trained and what it reached.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from slimscale.routing.learned.features import CELL_FEATURES, REGIME_FEATURES
from slimscale.routing.learned.observation import FloatArray

__all__ = ["FORMAT", "PolicyWeights", "Residual"]

FORMAT = "slimscale-router-1"
MOST_HIDDEN = 256
_REMEDY = "train it again with this release (`slimscale train router`)"


@dataclass(frozen=True, slots=True)
class Residual:
    """A small network over each cell's features: out . tanh(hidden x + bias), in J."""

    hidden: FloatArray
    """(H, K + G)."""
    hidden_bias: FloatArray
    """(H,)."""
    out: FloatArray
    """(H,)."""


@dataclass(frozen=True, slots=True)
class PolicyWeights:
    version: str
    start: FloatArray
    """(K,)."""
    slopes: FloatArray
    """(K, G)."""
    residual: Residual | None = None
    sharpness: float = 100.0
    """Of the softmax, per J."""

    def tensors(self) -> dict[str, FloatArray]:
        """By name, float64."""
        found = {"gate.start": self.start, "gate.slopes": self.slopes}
        if self.residual is not None:
            found["residual.hidden"] = self.residual.hidden
            found["residual.hidden_bias"] = self.residual.hidden_bias
            found["residual.out"] = self.residual.out
        return found

    def write(self, facts: Mapping[str, object]) -> tuple[bytes, dict[str, object]]:
        """(safetensors, card). `facts` go into the card as they are."""
        data = save({name: np.ascontiguousarray(one) for name, one in self.tensors().items()})
        return data, {
            "format": FORMAT,
            "version": self.version,
            "sha256": hashlib.sha256(data).hexdigest(),
            "sharpness": self.sharpness,
            "cell_features": list(CELL_FEATURES),
            "regime_features": list(REGIME_FEATURES),
            **facts,
        }

    @staticmethod
    def read(data: bytes, card: Mapping[str, object]) -> "PolicyWeights":
        """Raises ValueError, which says what is wrong and what to do, for what is no such policy."""
        if card.get("format") != FORMAT:
            raise ValueError(
                f"the card says format {card.get('format')!r}, not {FORMAT!r}; {_REMEDY}"
            )
        for key, names in (("cell_features", CELL_FEATURES), ("regime_features", REGIME_FEATURES)):
            if card.get(key) != list(names):
                raise ValueError(f"the card's {key} are not those of this release; {_REMEDY}")
        try:
            tensors = load(data)
        except SafetensorError as error:
            raise ValueError(f"the weights are no safetensors: {error}; {_REMEDY}") from error
        cells, regimes = len(CELL_FEATURES), len(REGIME_FEATURES)
        start = _tensor(tensors, "gate.start", (cells,))
        slopes = _tensor(tensors, "gate.slopes", (cells, regimes))
        residual = None
        if "residual.out" in tensors:
            hidden = tensors["residual.out"].shape[0] if tensors["residual.out"].ndim == 1 else 0
            if not 1 <= hidden <= MOST_HIDDEN:
                raise ValueError(
                    f"residual.out has {hidden} units, not 1 to {MOST_HIDDEN}; {_REMEDY}"
                )
            residual = Residual(
                _tensor(tensors, "residual.hidden", (hidden, cells + regimes)),
                _tensor(tensors, "residual.hidden_bias", (hidden,)),
                _tensor(tensors, "residual.out", (hidden,)),
            )
        sharpness = card.get("sharpness")
        if not isinstance(sharpness, int | float) or not 0.0 < sharpness < 1e6:
            raise ValueError(
                f"the card's sharpness is {sharpness!r}, not a number above 0; {_REMEDY}"
            )
        return PolicyWeights(
            str(card.get("version", ""))[:64], start, slopes, residual, float(sharpness)
        )


def _tensor(tensors: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> FloatArray:
    found = tensors.get(name)
    if found is None or found.shape != shape:
        has = "is missing" if found is None else f"has shape {found.shape}, not {shape}"
        raise ValueError(f"{name} {has}; {_REMEDY}")
    values = found.astype(np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"{name} has figures that are not finite; {_REMEDY}")
    return values
