"""The log of a learned policy's decisions on the wire: what it saw, what was done, how it ended.

One segment is one safetensors file of N decisions, P_i pods each (docs/reference/decision-log.md lists
the tensors). Figures, indices and flags alone: no name of a pod, no id and no text of a request.
Readers refuse a version that they do not know.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from slimscale.routing.learned import layout
from slimscale.routing.learned.observation import Observation

__all__ = ["FORMAT", "VERSION", "DecisionRecord", "Segment", "decode_segment", "encode_segment"]

FORMAT = "slimscale-decisions"
VERSION = "1"
Action = tuple[int, int, int, int]
"""Indices of pod, width, cap (in `layout.ACTION_CAPS`) and hold."""
Arrays = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision that has ended."""

    observation: Observation
    proposed: Action
    """The policy's own."""
    done: Action
    """What was done: the same, unless the shield or another policy decided."""
    acted: bool
    """Whether the policy's choice is what was done."""
    log_probability: float
    """Of the proposal, natural logarithm."""
    at_seconds: float
    """Since the log began."""
    latency_seconds: float
    answered: bool
    met: bool
    """Answered within the SLO."""
    compute_seconds: float = float("nan")
    """Of the batch that it was part of; NaN: unknown."""
    batch_rows: int = 0
    """Of that batch; 0: unknown."""
    sends: int = 1
    """To how many pods it was sent, one after the other: more than 1 is more than one decision."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Decoded. `facts`: format, version, router, policy (its version), digest, models, caps."""

    facts: Mapping[str, str]
    records: tuple[DecisionRecord, ...]


def encode_segment(records: Sequence[DecisionRecord], facts: Mapping[str, str]) -> bytes:
    """At least one record, all of the same widths."""
    seen = [record.observation for record in records]
    arrays: Arrays = {
        "pod_count": np.array([len(one.pods) for one in seen], dtype=np.int32),
        "cells": _joined([one.cells for one in seen]),
        "pods": _joined([one.pods for one in seen]),
        "mask": np.concatenate([one.mask for one in seen]).astype(np.uint8),
        "widths": seen[0].widths.astype(np.float32),
        "request": _stacked([one.request for one in seen]),
        "service": _stacked([one.service for one in seen]),
        "proposed": np.array([record.proposed for record in records], dtype=np.int32),
        "done": np.array([record.done for record in records], dtype=np.int32),
        "at_seconds": np.array([record.at_seconds for record in records], dtype=np.float64),
    }
    for name, kind in _COLUMNS.items():
        arrays[name] = np.array([getattr(record, name) for record in records], dtype=kind)
    known = {"format": FORMAT, "version": VERSION, "caps": ",".join(map(str, layout.ACTION_CAPS))}
    return save(arrays, metadata={**facts, **known})


def decode_segment(data: bytes) -> Segment:
    """ValueError, which says what is wrong, for what is no segment of this version."""
    facts = _facts(data)
    try:
        arrays: Arrays = load(data)
        records = tuple(_records(arrays))
    except (SafetensorError, KeyError, TypeError, IndexError, ValueError) as error:
        raise ValueError(f"the decision log is damaged: {error}; fetch it again") from error
    return Segment(facts, records)


_COLUMNS: Mapping[str, type[np.generic]] = {
    "acted": np.uint8,
    "log_probability": np.float32,
    "latency_seconds": np.float32,
    "answered": np.uint8,
    "met": np.uint8,
    "compute_seconds": np.float32,
    "batch_rows": np.int32,
    "sends": np.int32,
}


def _facts(data: bytes) -> Mapping[str, str]:
    header = _metadata(data)
    if header.get("format") != FORMAT:
        raise ValueError("this is no decision log: another safetensors file")
    if header.get("version") != VERSION:
        raise ValueError(
            f"the decision log has version {str(header.get('version'))[:16]!r}, this program reads"
            f" {VERSION!r}; use the release of the routers"
        )
    caps = ",".join(map(str, layout.ACTION_CAPS))
    if header.get("caps") != caps:
        raise ValueError(f"the decision log has caps {str(header.get('caps'))[:64]}, not {caps}")
    return header


def _metadata(data: bytes) -> Mapping[str, str]:
    """Of a safetensors file: 8 bytes of length, little endian, then JSON; the library skips it."""
    length = int.from_bytes(data[:8], "little")
    try:
        found = json.loads(data[8 : 8 + length])["__metadata__"] if length < len(data) else {}
    except (ValueError, KeyError, TypeError, RecursionError):
        found = {}
    return found if isinstance(found, dict) else {}


def _records(arrays: Arrays) -> Iterator[DecisionRecord]:
    counts = arrays["pod_count"].astype(np.int64)
    number, widths = len(counts), arrays["widths"].astype(np.float64)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if number else 0
    _check(arrays, number, total, len(widths))
    cells = arrays["cells"].astype(np.float64)
    pods = arrays["pods"].astype(np.float64)
    mask = arrays["mask"].astype(np.bool_)
    request, service = arrays["request"].astype(float), arrays["service"].astype(float)
    columns = {name: arrays[name].tolist() for name in (*_COLUMNS, "at_seconds")}
    for index in range(number):
        rows = slice(int(ends[index] - counts[index]), int(ends[index]))
        row = {name: values[index] for name, values in columns.items()}
        for flag in ("acted", "answered", "met"):
            row[flag] = bool(row[flag])
        yield DecisionRecord(
            observation=Observation(
                cells[rows], pods[rows], widths, request[index], service[index], mask[rows]
            ),
            proposed=_action(arrays["proposed"][index]),
            done=_action(arrays["done"][index]),
            **row,
        )


def _check(arrays: Arrays, number: int, total: int, widths: int) -> None:
    """Shapes, finite figures, and indices that point at something."""
    shapes = {
        "cells": (total, widths, layout.CELLS),
        "pods": (total, layout.PODS),
        "mask": (total, widths),
        "widths": (widths, layout.WIDTHS),
        "request": (number, layout.REQUEST),
        "service": (number, layout.SERVICE),
        "proposed": (number, 4),
        "done": (number, 4),
        "at_seconds": (number,),
        **dict.fromkeys(_COLUMNS, (number,)),
    }
    for name, shape in shapes.items():
        array = arrays[name]
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}, not {shape}")
        if name != "compute_seconds" and not np.isfinite(array.astype(np.float64)).all():
            raise ValueError(f"{name} has a figure that is not finite")
    limits = (widths, len(layout.ACTION_CAPS), layout.ACTION_HOLDS)
    for name in ("proposed", "done"):
        action = arrays[name].astype(np.int64)
        below = np.column_stack((arrays["pod_count"], np.tile(limits, (number, 1))))
        if (action < 0).any() or (action >= below).any():
            raise ValueError(f"{name} has an index out of range")


def _action(row: NDArray[np.generic]) -> Action:
    pod, width, cap, hold = (int(value) for value in row)
    return pod, width, cap, hold


def _joined(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float32]:
    return np.concatenate(parts).astype(np.float32)


def _stacked(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float32]:
    return np.stack(parts).astype(np.float32)
