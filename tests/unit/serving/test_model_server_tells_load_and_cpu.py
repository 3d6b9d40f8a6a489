"""What the model server tells a SimWorkload of its batches: whether there is enough to do, and their CPU."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from slimscale.observe.exposition import read_page
from slimscale.serving.modelserver import front
from slimscale.serving.modelserver.cpu_meter import CpuMeter, cpu_beside_this_thread
from slimscale.serving.modelserver.inline import Inline
from slimscale.serving.modelserver.instances import Batch, Instance, Model
from slimscale.serving.modelserver.occupancy import Occupancy
from slimscale.serving.protocol import Tensor
from tests.support.model_servers import with_model_server


@dataclass
class Server:
    """An occupancy with a clock of its own; `threads` a session."""

    threads: int = 2
    seconds: float = 100.0
    occupancy: Occupancy = field(init=False)

    def __post_init__(self) -> None:
        self.occupancy = Occupancy(now=lambda: self.seconds, threads=lambda: self.threads)

    def batch(self, rows: int, seconds: float) -> None:
        self.occupancy.entered(rows)
        self.seconds += seconds
        self.occupancy.left(rows)

    def idle(self, seconds: float) -> None:
        self.seconds += seconds


def test_one_batch_after_the_other_counts_as_enough_to_do_though_no_look_sees_one() -> None:
    server = Server()
    for _ in range(100):
        server.batch(32, 0.018)
        server.idle(0.002)
    assert server.occupancy.outstanding() == 29
    assert server.occupancy.outstanding() >= server.threads, "a second look, at once"


def test_large_batches_now_and_then_are_no_saturation() -> None:
    server = Server()
    for _ in range(10):
        server.batch(32, 0.1)
        server.idle(0.1)
    assert server.occupancy.outstanding() == 1, "half of the time of two threads"
    server.idle(10.0)
    assert server.occupancy.outstanding() == 0


def test_rows_that_wait_and_rows_that_run_count_both_and_a_reading_starts_anew() -> None:
    server = Server()
    server.occupancy.entered(4)
    server.occupancy.entered(8)
    server.idle(2.0)
    assert server.occupancy.outstanding() == 12
    server.occupancy.left(4)
    server.idle(2.0)
    assert server.occupancy.outstanding() == 8
    server.idle(0.5)  # too short to tell anything new
    assert server.occupancy.outstanding() == 8


def test_cpu_counts_while_batches_run_once_however_they_overlap() -> None:
    used, counted = [10.0], [0.0]

    def add(seconds: float) -> None:
        counted[0] += seconds

    meter = CpuMeter(lambda: used[0], add)
    used[0] = 50.0  # loading and warming
    meter.began()
    used[0] += 1.0
    meter.began()
    used[0] += 2.0
    meter.ended()
    used[0] += 4.0
    meter.ended(own_seconds=0.5)
    used[0] += 100.0
    meter.began()
    meter.ended()
    assert counted[0] == pytest.approx(7.5)


def test_the_event_loop_s_own_time_is_not_the_batches() -> None:
    beside = cpu_beside_this_thread()

    def work() -> None:
        until = time.thread_time() + 0.1
        while time.thread_time() < until:
            pass

    before = beside()
    work()
    own = beside() - before
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert own < 0.05
    assert beside() - before >= 0.1


class Meter:
    """In place of a CpuMeter: what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.own_seconds = 0.0

    def began(self) -> None:
        self.told.append("began")

    def ended(self, own_seconds: float = 0.0) -> None:
        self.told.append("ended")
        self.own_seconds += own_seconds


class Busy:
    """An instance whose batches take 50 ms of CPU on the thread that runs them."""

    retired = False
    opened = SimpleNamespace(on_gpu=False, metadata=None)
    runs = SimpleNamespace(expected=lambda _rows: 0.001)

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1)

    def run(self, _inputs: Any) -> Batch:
        until = time.thread_time() + 0.05
        while time.thread_time() < until:
            pass
        return Batch([], 0.05)

    def close(self) -> None:
        self.executor.shutdown(wait=False)


async def test_batches_in_a_thread_and_on_the_loop_are_both_metered() -> None:
    meter = Meter()
    model = Model("m", Inline(), cast(CpuMeter, meter))
    model.replace([cast(Instance, Busy())])
    rows = [Tensor("image", "FP32", np.zeros((1, 2), np.float32))]
    await model.infer(rows)
    assert (meter.told, meter.own_seconds) == (["began", "ended"], 0.0)
    assert model.infer_at_once(rows) is not None
    assert meter.told == ["began", "ended"] * 2
    assert meter.own_seconds >= 0.05
    model.replace([])


async def test_rows_count_as_inside_while_their_batch_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []

    class Seen(Occupancy):
        def entered(self, rows: int) -> None:
            seen.append(("in", rows))

        def left(self, rows: int) -> None:
            seen.append(("out", rows))

    monkeypatch.setattr(front, "Occupancy", Seen)
    async with with_model_server(tmp_path) as (_, asks):
        for _ in range(12):
            await asks.infer([1.0, 2.0])
    assert len(seen) >= 24
    assert set(zip(seen[::2], seen[1::2], strict=True)) == {(("in", 2), ("out", 2))}


@pytest.mark.parametrize("batches", [1, 12])
async def test_the_cpu_of_batches_is_served_whether_they_run_in_a_thread_or_on_the_loop(
    tmp_path: Path, batches: int
) -> None:
    """Of 12 alike the last ones run on the loop."""
    async with with_model_server(tmp_path) as (_, asks):
        seen = []
        for _ in range(batches):
            await asks.infer([1.0])
            page = await asks.metrics()
            sample = read_page(page, prefix="slimscale", pod_uid="u", now_seconds=1.0)
            seen.append(sample.task_cpu_seconds_total or 0.0)
    assert all(later > earlier for earlier, later in zip([0.0, *seen], seen, strict=False))
    assert seen[-1] < 60.0
