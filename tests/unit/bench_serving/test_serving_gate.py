"""Measuring on a shared machine: short stretches, alone, not while somebody asks for quiet."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slimscale.bench.serving.gate import Gate


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.while_sleeping: Callable[[], None] = lambda: None

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now > 1000:
            raise TimeoutError("waits for ever")
        self.while_sleeping()


@pytest.fixture
def time() -> Time:
    return Time()


def gate(time: Time, **files: Path) -> Gate:
    return Gate(
        **files, stretch_seconds=100.0, pause_seconds=30.0, clock=time.clock, sleep=time.sleep
    )


def test_without_lock_and_quiet_nothing_waits(time: Time) -> None:
    free = gate(time)
    for _ in range(50):
        free.enter()
        time.now += 10
        free.leave()
    assert time.now == 500


def test_the_lock_is_held_over_turns_and_left_to_others_after_a_stretch(
    time: Time, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    shared = gate(time, lock=lock)
    shared.enter()
    time.now += 60
    shared.leave()
    assert lock.exists()
    shared.enter()
    time.now += 60
    shared.leave()
    assert not lock.exists()
    assert time.now == 60 + 60 + 30


def test_a_lock_of_somebody_else_is_waited_for_and_never_removed(
    time: Time, tmp_path: Path
) -> None:
    lock = tmp_path / "lock"
    lock.mkdir()
    shared = gate(time, lock=lock)
    with pytest.raises(TimeoutError):
        shared.enter()
    shared.close()
    assert lock.exists()
    time.now = 0.0
    time.while_sleeping = lock.rmdir
    shared.enter()
    assert lock.exists()
    shared.close()
    assert not lock.exists()


def test_nothing_is_measured_and_nothing_held_while_somebody_asks_for_quiet(
    time: Time, tmp_path: Path
) -> None:
    lock, quiet = tmp_path / "lock", tmp_path / "quiet"
    shared = gate(time, lock=lock, quiet=quiet)
    shared.enter()
    quiet.touch()
    shared.leave()
    assert not lock.exists()
    seen = []

    def look() -> None:
        seen.append(lock.exists())
        if len(seen) == 3:
            quiet.unlink()

    time.while_sleeping = look
    shared.enter()
    assert seen == [False] * 3
    assert lock.exists()
