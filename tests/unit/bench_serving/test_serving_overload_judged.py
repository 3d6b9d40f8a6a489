"""What counts as kept, late and broken under overload, and which promises that keeps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from slimscale.bench.serving.gate import Gate
from slimscale.bench.serving.judge import judge_overload
from slimscale.bench.serving.loadgen.job import Answered, Job
from slimscale.bench.serving.overload import DEADLINE_MILLISECONDS, OVER, Overload, overload
from slimscale.bench.serving.records import Journal

MIB = 2**20
GOOD = Overload(
    system="slimscale", seconds=60.0, deadline=250.0, capacity_per_second=2000.0,
    offered_per_second=4000.0, right_per_second=1990.0, kept=9900, late=100, refused=10_000,
    broken=0, accepted_p99=240.0, refused_p50=1.0, refused_p99=9.0, generator_late_p99=1.0,
    settled_bytes={"sidecar": 80 * MIB}, last_bytes={"sidecar": 81 * MIB},
    calm_offered_per_second=500.0, calm_right=1000, calm_not_right=0, calm_p99=30.0,
    load_average=2.0, at="2026-01-01T00:00:00+00:00",
)  # fmt: skip


def reached(found: Overload) -> list[bool | None]:
    return [claim.reached for claim in judge_overload(found)]


def test_each_promise_fails_alone() -> None:
    assert reached(GOOD) == [True, True, True, True]
    assert reached(replace(GOOD, kept=9899, late=101)) == [False, True, True, True]
    assert reached(replace(GOOD, broken=1)) == [False, True, True, True]
    assert reached(replace(GOOD, refused_p99=10.0)) == [True, False, True, True]
    assert reached(replace(GOOD, last_bytes={"sidecar": 97 * MIB})) == [True, True, False, True]
    assert reached(replace(GOOD, calm_not_right=1)) == [True, True, True, False]
    assert reached(replace(GOOD, calm_p99=251.0)) == [True, True, True, False]
    assert reached(replace(GOOD, calm_right=0)) == [True, True, True, False]


class Served:
    """A system of no process."""

    name, path, dialect, port, pausable = "slimscale", "/", "v2", 1, True

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.stopped = False

    def prepare(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None:
        self.stopped = True

    def processes(self) -> list[Any]:
        return []


class Scripted:
    """Answers ready, capacity, overload and calm in this order."""

    def __init__(self, *answers: Answered) -> None:
        self.answers = list(answers)
        self.jobs: list[Job] = []

    def do(self, job: Job) -> Answered:
        self.jobs.append(job)
        return self.answers.pop(0)


def test_late_answers_and_expired_requests_count_against_it_and_refusals_do_not(
    tmp_path: Path,
) -> None:
    late = DEADLINE_MILLISECONDS * 1000 + 1
    system = Served()
    generator: Any = Scripted(
        Answered(right=1),
        Answered(right=400, in_window=400),
        Answered(
            right=3, answer_micros=[1000, late - 1, late], refused=5, refused_micros=[100, 9000],
            failed=3, expired=2, lost=1, unanswered=1,
        ),
        Answered(right=7, answer_micros=[5000], failed=1),
    )  # fmt: skip
    found = overload(
        system,
        generator,
        payload=tmp_path,
        seconds=2.0,
        seed=1,
        gate=Gate(),
    )
    assert system.stopped
    assert (found.kept, found.late, found.refused, found.broken) == (2, 3, 5, 3)
    assert (found.calm_right, found.calm_not_right) == (7, 1)
    assert found.capacity_per_second == 100.0
    pressed = generator.jobs[2]
    assert dict(pressed.headers) == {"slimscale-deadline-ms": str(DEADLINE_MILLISECONDS)}
    assert abs(len(pressed.arrivals_seconds) - OVER * 100.0 * 2.0) < 100
    journal = Journal(tmp_path / "journal.jsonl")
    journal.keep_overload(found)
    assert Journal.load(journal.path).overloads == {"slimscale": found}
