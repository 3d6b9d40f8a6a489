"""When the model server runs a batch on its event loop, and when in a thread."""

import threading
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from slimscale.serving.modelserver.inline import SHORT_SECONDS, Inline, ShortRuns
from tests.support.model_servers import WIDE, with_model_server


def test_only_what_has_been_short_several_times_is_trusted_to_be_short() -> None:
    runs = ShortRuns()
    for _ in range(7):
        runs.took(1, 0.003)
    assert runs.expected(1) > SHORT_SECONDS
    runs.took(1, 0.003)
    assert runs.expected(1) == pytest.approx(0.003)
    assert runs.expected(32) > SHORT_SECONDS, "another size has not been seen"


def test_one_long_run_takes_a_batch_size_off_the_loop() -> None:
    runs = ShortRuns()
    for _ in range(20):
        runs.took(1, 0.003)
    runs.took(1, 0.1)
    assert runs.expected(1) > SHORT_SECONDS


def test_batches_that_want_to_run_at_once_get_threads_for_a_while() -> None:
    inline = Inline()
    assert inline.allows(0.001, now=0.0)
    inline.enter(now=0.0)
    assert not inline.allows(0.001, now=0.0), "one runs in a thread"
    inline.enter(now=0.0)
    inline.leave()
    inline.leave()
    assert not inline.allows(0.001, now=9.0)
    assert inline.allows(0.001, now=10.5)


def test_now_and_then_a_batch_gets_a_thread_to_see_whether_another_waits() -> None:
    inline = Inline()
    asked = [inline.allows(0.001, now=0.0) for _ in range(512)]
    assert asked.count(False) == 4
    assert not inline.allows(1.0, now=0.0), "a long batch never runs on the loop"


async def test_a_short_batch_runs_on_the_loop_and_two_instances_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    real = onnxruntime.InferenceSession

    class Session(real):  # type: ignore[misc, valid-type]
        def run(self, names: Any, feed: dict[str, Any]) -> Any:
            threads.append(threading.current_thread().name)
            return super().run(names, feed)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    main = threading.main_thread().name
    async with with_model_server(tmp_path) as (_, asks):
        for number in range(9):
            assert asks.values(await asks.infer([float(number)])) == [2.0 * number]
        assert threads[-1] == main
        assert (await asks.load(WIDE, 2)).status == 200
        assert asks.values(await asks.infer([1.0])) == [2.0]
        assert threads[-1] != main
