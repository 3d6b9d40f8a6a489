"""Kubernetes quantities, as far as CPU and rates need them."""

import re
from decimal import ROUND_CEILING, Decimal

__all__ = ["QUANTITY_PATTERN", "format_millicores", "parse_millicores", "parse_quantity"]

_SUFFIX = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal("1e3"), "M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
}  # fmt: skip
QUANTITY_PATTERN = r"^([+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}))([num]|k|[MGT]i?|Ki)?$"
"""Also the CRD's: what it takes and what is parsed here are the same texts."""
_QUANTITY = re.compile(QUANTITY_PATTERN)


def parse_quantity(text: str | int | float) -> Decimal:
    """Return the number that a quantity stands for.

    Raises:
        ValueError: the text is no quantity; the message shows it and gives an example.
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{str(text)[:40]!r} is not a quantity; write for example 500m or 2")
    return Decimal(match[1]) * _SUFFIX[match[2] or ""]


def parse_millicores(text: str | int | float) -> int:
    """CPU quantity to whole millicores, rounded up as the API server does."""
    return int((parse_quantity(text) * 1000).to_integral_value(rounding=ROUND_CEILING))


def format_millicores(millicores: int) -> str:
    """The canonical text that the API server would store: `2` for 2000, `1500m` otherwise."""
    return str(millicores // 1000) if millicores % 1000 == 0 else f"{millicores}m"
