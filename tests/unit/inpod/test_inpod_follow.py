import itertools
import logging
import os
import threading
from pathlib import Path

import pytest

from slimscale.inpod.follower import Follower, follow
from slimscale.inpod.recorder import Recorder
from slimscale.inpod.threads_file import Ignored, ThreadsValue, parse_threads, read_threads


class Time:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"7", ThreadsValue(7)),
        (b" 12\n", ThreadsValue(12)),
        (b"007", ThreadsValue(7)),
        (b"", ThreadsValue(None, Ignored.EMPTY)),
        (b" \n", ThreadsValue(None, Ignored.EMPTY)),
        (b"0", ThreadsValue(None, Ignored.NOT_POSITIVE)),
        (b"-4", ThreadsValue(None, Ignored.NOT_POSITIVE)),
        (b"4.0", ThreadsValue(None, Ignored.NOT_A_NUMBER)),
        (b"1e3", ThreadsValue(None, Ignored.NOT_A_NUMBER)),
        (b"four", ThreadsValue(None, Ignored.NOT_A_NUMBER)),
        ("４".encode(), ThreadsValue(None, Ignored.NOT_A_NUMBER)),
        (b"\xff\x00", ThreadsValue(None, Ignored.NOT_A_NUMBER)),
        (b"9" * 5000, ThreadsValue(None, Ignored.NOT_A_NUMBER)),
        (b"2000000", ThreadsValue(1024, Ignored.TOO_LARGE)),
    ],
)
def test_content_is_a_count_or_has_a_reason(content: bytes, value: ThreadsValue) -> None:
    assert parse_threads(content) == value


def test_a_missing_file_a_folder_and_a_pipe_do_not_stop_the_program(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_threads(tmp_path / "none") == ThreadsValue(None, Ignored.ABSENT)
    assert read_threads(tmp_path) == ThreadsValue(None, Ignored.ABSENT)
    assert read_threads(tmp_path / "pipe").threads is None


def test_a_swapped_symlink_is_followed_as_the_kubelet_writes_it(tmp_path: Path) -> None:
    for name, count in (("..1", "4"), ("..2", "6")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "threads").write_text(count)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "threads").symlink_to("..data/threads")
    now = Time()
    follower = Follower(path=tmp_path / "threads", now=now)
    assert follower.pending() == 4
    follower.acknowledge(4)
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    now.seconds += 1.0
    assert follower.pending() == 6


def test_a_count_is_offered_until_it_is_acknowledged_and_not_again(tmp_path: Path) -> None:
    file = tmp_path / "threads"
    file.write_text("4")
    now = Time()
    follower = Follower(path=file, now=now)
    assert (follower.pending(), follower.pending()) == (4, 4)
    assert follower.applied is None
    follower.acknowledge(3)  # its library allows no more
    now.seconds += 10.0
    assert follower.pending() is None
    assert follower.applied == 3


def test_a_count_that_changes_while_it_is_applied_is_offered_again(tmp_path: Path) -> None:
    file = tmp_path / "threads"
    file.write_text("4")
    now = Time()
    follower = Follower(path=file, now=now)
    assert follower.pending() == 4
    file.write_text("8")
    follower.acknowledge(4)
    now.seconds += 1.0
    assert follower.pending() == 8


def test_the_file_is_read_no_more_often_than_asked(tmp_path: Path) -> None:
    file = tmp_path / "threads"
    file.write_text("4")
    now = Time()
    follower = Follower(path=file, poll_seconds=0.5, now=now)
    assert follower.pending() == 4
    file.write_text("5")
    now.seconds = 0.49
    assert follower.pending() == 4
    now.seconds = 0.5
    assert follower.pending() == 5


@pytest.mark.parametrize("bad", ["", "0", "-1", "many", None])
def test_the_last_good_value_is_kept(tmp_path: Path, bad: str | None) -> None:
    file = tmp_path / "threads"
    file.write_text("4")
    now = Time()
    follower = Follower(path=file, now=now)
    assert follower.pending() == 4
    follower.acknowledge(4)
    if bad is None:
        file.unlink()
    else:
        file.write_text(bad)
    now.seconds += 1.0
    assert follower.pending() is None
    assert (follower.wanted, follower.applied) == (4, 4)


def test_a_bad_value_is_logged_and_counted_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "threads"
    file.write_text("secret words")
    now, recorder = Time(), Recorder()
    follower = Follower(path=file, now=now, recorder=recorder)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            now.seconds += 1.0
            follower.pending()
    assert len(caplog.records) == 1
    assert "secret" not in caplog.text
    assert recorder.ignored_thread_values == {"not-a-number": 1}


def test_no_annotation_is_no_fault(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    follower = Follower(path=tmp_path / "threads", recorder=(recorder := Recorder()))
    assert follower.pending() is None
    assert caplog.records == []
    assert recorder.ignored_thread_values == {}


def test_a_huge_count_is_clamped_and_said(tmp_path: Path) -> None:
    file = tmp_path / "threads"
    file.write_text("5000")
    recorder = Recorder()
    assert Follower(path=file, maximum=16, recorder=recorder).pending() == 16
    assert recorder.ignored_thread_values == {"too-large": 1}


def test_the_metric_follows_the_return_of_the_callback_and_not_the_file(tmp_path: Path) -> None:
    file = tmp_path / "threads"
    file.write_text("4")
    recorder = Recorder()
    recorder.threads_applied = 2
    seen: list[int | None] = []

    def apply(threads: int) -> None:
        assert threads == 4
        seen.append(recorder.figures().threads_applied)

    follower = follow(apply, path=file, recorder=recorder)
    assert follower.apply() == 4
    assert seen == [2]
    assert recorder.figures().threads_applied == 4
    assert follower.apply() is None
    assert len(seen) == 1


def test_a_callback_that_raises_is_not_acknowledged_and_is_tried_less_and_less(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "threads"
    file.write_text("4")
    now, recorder = Time(), Recorder()
    tries: list[float] = []

    def apply(threads: int) -> None:
        tries.append(now.seconds)
        if threads == 4:
            raise OSError("no more threads")

    follower = Follower(apply, path=file, recorder=recorder, now=now)
    for _ in range(1200):
        follower.apply()
        now.seconds += 0.1
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert gaps == sorted(gaps)
    assert 0.5 <= gaps[0] < 1.0
    assert gaps[-1] > 25.0
    assert recorder.figures().threads_applied is None
    assert len(caplog.records) == 1
    file.write_text("3")
    now.seconds += 0.3
    assert follower.apply() == 3, "a new count does not wait for the old one's turn"


def test_an_answer_below_one_is_no_acknowledgement(tmp_path: Path) -> None:
    file = tmp_path / "threads"
    file.write_text("4")
    follower = follow(lambda _: 0, path=file)
    assert follower.apply() is None
    assert follower.applied is None


def test_the_callers_thread_runs_the_callback_unless_asked_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "threads"
    file.write_text("4")
    ran_in: list[threading.Thread] = []
    called = threading.Event()

    def apply(threads: int) -> None:
        ran_in.append(threading.current_thread())
        called.set()

    follow(apply, path=file).apply()
    assert ran_in == [threading.current_thread()]
    called.clear()
    pushed = follow(apply, path=file, poll_seconds=0.01, apply_in="thread")
    assert called.wait(20.0)
    pushed.stop()
    assert ran_in[1] is not threading.current_thread()


@pytest.mark.parametrize("seconds", [0.0, -1.0, 100.0, float("nan")])
def test_a_poll_interval_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="poll_seconds"):
        Follower(poll_seconds=seconds)
