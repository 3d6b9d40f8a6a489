"""The example in C keeps the contract: built with all warnings as errors, run, told, asked."""

import re
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slimscale.domain.contract import ContractSample
from slimscale.observe.exposition import read_page

SOURCE = Path(__file__).parents[2] / "examples" / "contract-c" / "simulation.c"
WAIT_SECONDS = 20.0
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


class Simulation:
    def __init__(self, program: Path, folder: Path) -> None:
        self.file = folder / "threads"
        self.write("2")
        self.said = (folder / "said").open("w")
        self.process = subprocess.Popen(
            [program],
            env={"SLIMSCALE_THREADS_FILE": str(self.file), "SLIMSCALE_METRICS_PORT": "0"},
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
        )
        assert self.process.stdout is not None
        said = re.fullmatch(r"metrics on port (\d+)\n", self.process.stdout.readline())
        assert said is not None
        self.address = f"http://127.0.0.1:{said[1]}"

    def write(self, text: str) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.file)

    def page(self, path: str = "/metrics") -> str:
        with urllib.request.urlopen(self.address + path, timeout=WAIT_SECONDS) as answer:  # noqa: S310
            body: bytes = answer.read()
        return body.decode()

    def sample(self) -> ContractSample:
        return read_page(self.page(), prefix="slimscale", pod_uid="c", now_seconds=time.time())

    def until(self, holds: Callable[[ContractSample], bool]) -> ContractSample:
        end = time.monotonic() + WAIT_SECONDS
        while not holds(sample := self.sample()):
            assert time.monotonic() < end, sample
            threading.Event().wait(0.02)
        return sample

    def kernel_threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))


def applied(count: int) -> Callable[[ContractSample], bool]:
    return lambda sample: sample.threads_applied == count


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("contract-c") / "simulation"
    flags = ["-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["cc", *flags, "-o", target, SOURCE], check=True, timeout=50)
    return target


@pytest.fixture
def simulation(program: Path, tmp_path: Path) -> Iterator[Simulation]:
    running = Simulation(program, tmp_path)
    yield running
    running.process.terminate()
    assert running.process.wait(WAIT_SECONDS) == 0
    assert running.process.stdout is not None
    running.process.stdout.close()
    running.said.close()


@needs_compiler
def test_the_metrics_are_the_contracts(simulation: Simulation) -> None:
    sample = simulation.until(lambda now: (now.tasks_total or 0) >= 50)
    assert sample.threads_applied == 2
    assert sample.task is not None
    assert sample.task.count == sample.tasks_total
    assert sample.dispatch is not None
    assert sample.dispatch.count == sample.tasks_total
    assert 0 < sample.dispatch.sum_seconds < sample.task.sum_seconds
    assert sample.task_cpu_seconds_total is not None
    assert sample.task_cpu_seconds_total > 0
    assert abs(sample.process_start_seconds - time.time()) < 60
    saturated = simulation.until(lambda now: (now.tasks_outstanding or 0) >= 2)
    assert saturated.same_process_as(sample)


@needs_compiler
def test_counts_are_acknowledged_when_the_threads_are_there(simulation: Simulation) -> None:
    helpers = 3  # the pool's owner, the producer, the metrics
    for count in (5, 1, 3):
        before = simulation.sample()
        simulation.write(str(count))
        after = simulation.until(applied(count))
        assert simulation.kernel_threads() == helpers + count
        assert after.same_process_as(before), "the counts of threads that left are kept"


@needs_compiler
@pytest.mark.parametrize("bad", ["", "0", "-3", "four", "4.5"])
def test_a_bad_count_keeps_the_last_good_one(simulation: Simulation, bad: str) -> None:
    simulation.write("4")
    simulation.until(applied(4))
    simulation.write(bad)
    threading.Event().wait(0.3)  # more than one of its looks
    assert simulation.sample().threads_applied == 4


@needs_compiler
def test_a_bad_count_is_said_once_and_names_the_remedy(simulation: Simulation) -> None:
    simulation.write("four")
    threading.Event().wait(0.7)  # several of its looks
    said = (simulation.file.parent / "said").read_text()
    assert said.count("\n") == 1
    assert '"four" is no thread count; write a whole number above 0' in said


@needs_compiler
def test_a_huge_count_is_clamped(simulation: Simulation) -> None:
    simulation.write("9" * 30)
    assert simulation.until(lambda now: now.threads_applied != 2).threads_applied == 64


@needs_compiler
def test_other_paths_are_not_there(simulation: Simulation) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        simulation.page("/threads")
    assert refused.value.code == 404
    refused.value.close()
