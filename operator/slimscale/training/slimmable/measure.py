"""What a width costs: parameters, work, and time by batch in onnxruntime on one thread."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, shape_inference

from slimscale.training.slimmable.export import INPUT, OUTPUT, open_session

__all__ = ["BATCHES", "Latency", "Work", "fit_line", "load_average", "measure_latency", "work_of"]

BATCHES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Work:
    """`flops` a row: two for each multiply-add of convolutions and the linear layer."""

    parameters: int
    flops: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Latency:
    """Medians in seconds. A batch of b rows takes about `base + b * row`."""

    by_batch: Mapping[int, float]
    base_seconds: float
    row_seconds: float
    worst_error: float
    """Of the line at the measured batches, as a share of the time."""
    load_seconds: float
    """Until a session is there, without its first run."""


def work_of(content: bytes) -> Work:
    """Counted from a graph of convolutions and linear layers, at one row."""
    model = shape_inference.infer_shapes(onnx.load_from_string(content), strict_mode=True)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.value_info
    }
    multiply_adds = 0
    for node in model.graph.node:
        if node.op_type == "Conv":
            _, _, height, width = shapes[node.output[0]]
            multiply_adds += weights[node.input[1]].size * height * width
        elif node.op_type == "Gemm":
            multiply_adds += weights[node.input[1]].size
    return Work(
        parameters=sum(weight.size for weight in weights.values()),
        flops=2 * multiply_adds,
        file_bytes=len(content),
    )


def measure_latency(
    paths: Mapping[float, Path],
    *,
    rounds: int,
    seed: int,
    round_done: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> Mapping[float, Latency]:
    """Time every (width, batch) once a round, in a new order each round; medians over rounds.

    Interleaved, so that a disturbance of the machine falls on all of them alike.
    """
    rng = Random(seed)  # noqa: S311
    loads: dict[float, list[float]] = {ratio: [] for ratio in paths}
    sessions = {}
    for _ in range(3):
        for ratio, path in paths.items():
            content = path.read_bytes()
            began = clock()
            sessions[ratio] = open_session(content, threads=1)
            loads[ratio].append(clock() - began)
    pixels = np.random.default_rng(seed).random((max(BATCHES), 1, 28, 28), dtype=np.float32)
    cases = [(ratio, rows) for ratio in paths for rows in BATCHES]
    times: dict[tuple[float, int], list[float]] = {case: [] for case in cases}
    for index in range(rounds + 1):
        rng.shuffle(cases)
        for ratio, rows in cases:
            feed = {INPUT: pixels[:rows]}
            sessions[ratio].run([OUTPUT], feed)  # the case before has emptied the caches
            began = clock()
            sessions[ratio].run([OUTPUT], feed)
            if index:  # the first round warms up
                times[ratio, rows].append(clock() - began)
        round_done()
    found = {}
    for ratio in paths:
        by_batch = {rows: float(np.median(times[ratio, rows])) for rows in BATCHES}
        base, row, error = fit_line(BATCHES, [by_batch[rows] for rows in BATCHES])
        found[ratio] = Latency(
            by_batch=by_batch,
            base_seconds=base,
            row_seconds=row,
            worst_error=error,
            load_seconds=float(np.median(loads[ratio])),
        )
    return found


def fit_line(rows: Sequence[int], seconds: Sequence[float]) -> tuple[float, float, float]:
    """(base, row, worst relative error) of seconds = base + row * rows.

    Least squares of relative errors, so that a batch of one counts as much as one of 32; base is
    not below 0.
    """
    b: NDArray[np.float64] = np.asarray(rows, np.float64)
    t: NDArray[np.float64] = np.asarray(seconds, np.float64)
    (base, row), *_ = np.linalg.lstsq(np.stack([1 / t, b / t], axis=1), np.ones(len(b)))
    if base < 0:
        base, row = 0.0, float((b / t).sum() / ((b / t) ** 2).sum())
    error = float(np.abs((base + row * b) / t - 1).max())
    return float(base), float(row), error


def load_average() -> float:
    """Of the last minute: what else the machine had to do."""
    return os.getloadavg()[0]
