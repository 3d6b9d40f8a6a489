"""The data set: chunks of cases, each written once, so that an interrupted run goes on.

Nothing here is drawn in order: a chunk depends on its split, its number and the seed alone.
"""

import hashlib
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slimscale.training.raw import GRID, Labelling, RawCase, simulate_case
from slimscale.training.rows import Rows, rows_of
from slimscale.training.workloads import Split, draw_case

__all__ = ["TEST_SPLITS", "Dataset", "Plan", "generate", "load_split"]

FloatArray = NDArray[np.float64]

CASES_A_CHUNK = 100
MOST_QUEUED = 16
FORMAT = 4
"""Raise when rows change their meaning: older chunks are then made anew."""
# The greatest of many measured rates is too high by their noise: with 6,000 tasks a point measured
# once, that alone made a median loss of 1 % where there was one of 0.3 %.
_TEST_LABELS = Labelling(counts=len(GRID), tasks=8_000, twice=True, even=True)
TEST_SPLITS = (Split.SEEN, Split.HELD_OUT)
LABELS = {
    # Many workloads, each measured roughly: the noise of single labels averages out in training.
    Split.TRAIN: Labelling(counts=8, tasks=500),
    Split.VALIDATION: Labelling(counts=10, tasks=800),
    Split.SEEN: _TEST_LABELS,
    Split.HELD_OUT: _TEST_LABELS,
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How many cases of each split, and where they are kept."""

    folder: Path
    seed: int
    cases: dict[Split, int]
    test_seed: int
    """Of the splits that are only judged by: a seed that nothing was designed with."""

    def chunks(self) -> list[tuple[Split, int, int]]:
        """(split, first case, cases) of each chunk."""
        return [
            (split, first, min(CASES_A_CHUNK, count - first))
            for split, count in self.cases.items()
            for first in range(0, count, CASES_A_CHUNK)
        ]

    def path(self, split: Split, first: int, count: int) -> Path:
        seed = self.seed_of(split)
        return self.folder / f"v{FORMAT}-seed{seed}-{split}-{first:06d}-{count}.npz"

    def seed_of(self, split: Split) -> int:
        return self.test_seed if split in TEST_SPLITS else self.seed


@dataclass(frozen=True, slots=True)
class Dataset:
    """Rows of one split; see `rows.Rows`. `case` tells which rows belong together."""

    branch: FloatArray
    trunk: FloatArray
    analytic: FloatArray
    bound: FloatArray
    physics: FloatArray
    labels: FloatArray
    again: FloatArray
    facts: FloatArray
    case: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.branch)

    def take(self, index: NDArray[np.int64]) -> "Dataset":
        return Dataset(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    @property
    def digest(self) -> str:
        """Of all numbers in it."""
        whole = hashlib.sha256()
        for field in fields(self):
            whole.update(np.ascontiguousarray(getattr(self, field.name)).tobytes())
        return whole.hexdigest()[:16]


def generate(
    plan: Plan, *, workers: int | None = None, progress: Callable[[Split, int], None]
) -> None:
    """Make the chunks that are not there yet, on `workers` processes (default: all cores).

    `progress` is told of each finished chunk: its split and its cases.
    """
    plan.folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for chunk in plan.chunks():
        if plan.path(*chunk).exists():
            progress(chunk[0], chunk[2])
        else:
            missing.append(chunk)
    if not missing:
        return
    with _pool(workers) as pool:
        running: dict[Future[None], tuple[Split, int, int]] = {}
        queue = list(reversed(missing))
        while queue or running:
            while queue and len(running) < MOST_QUEUED:
                chunk = queue.pop()
                running[pool.submit(_make_chunk, plan, *chunk)] = chunk
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
                split, _, cases = running.pop(future)
                progress(split, cases)


def load_split(
    plan: Plan, split: Split, *, workers: int | None = None, progress: Callable[[int], None]
) -> Dataset:
    """All rows of a split, with today's estimator and features.

    Raises FileNotFoundError where a chunk was not generated. Cases whose pod the operator would
    not decide on have no rows. `progress` is told of each chunk's cases.
    """
    chunks = [chunk for chunk in plan.chunks() if chunk[0] is split]
    parts: list[Dataset] = []
    with _pool(workers) as pool:
        for part, chunk in zip(pool.map(partial(_load_chunk, plan), chunks), chunks, strict=True):
            parts.append(part)
            progress(chunk[2])
    return Dataset(
        **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Dataset)}
    )


def _pool(workers: int | None) -> ProcessPoolExecutor:
    count = workers or len(os.sched_getaffinity(0))
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


def _load_chunk(plan: Plan, chunk: tuple[Split, int, int]) -> Dataset:
    split, first, count = chunk
    with np.load(plan.path(*chunk), allow_pickle=False) as file:
        whole = {field.name: file[field.name] for field in fields(RawCase)}
    found: list[Rows] = []
    owners: list[int] = []
    for offset in range(count):
        raw = RawCase(**{name: array[offset] for name, array in whole.items()})
        rows = rows_of(draw_case(split, first + offset, seed=plan.seed_of(split)), raw)
        if rows is not None:
            found.append(rows)
            owners.extend([first + offset] * len(rows.branch))
    arrays: dict[str, Any] = {
        field.name: np.concatenate([getattr(rows, field.name) for rows in found], dtype=np.float32)
        for field in fields(Rows)
    }
    return Dataset(case=np.asarray(owners, dtype=np.int64), **arrays)


def _make_chunk(plan: Plan, split: Split, first: int, count: int) -> None:
    cases = [
        simulate_case(draw_case(split, index, seed=plan.seed_of(split)), LABELS[split])
        for index in range(first, first + count)
    ]
    path = plan.path(split, first, count)
    unfinished = path.with_suffix(f".{os.getpid()}.part")
    with unfinished.open("wb") as file:
        arrays: dict[str, Any] = {
            field.name: np.stack([getattr(case, field.name) for case in cases])
            for field in fields(RawCase)
        }
        np.savez_compressed(file, **arrays)
    unfinished.replace(path)
