"""`slimscale advise`: a local program under the contract gets the operator's own decision."""

import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from slimscale.cli.advise import _further, advise, advised, decide_locally, ladder
from slimscale.cli.local_program import LocalProgram, run_to_end
from slimscale.domain.contract import ContractSample
from slimscale.exceptions import SlimError
from slimscale.threads.closed_network import NetworkParameters
from tests.support.observations import SyntheticWorkload

WAITING = """
    import time
    from slimscale import inpod

    pool = inpod.ThreadPool(2)
    inpod.start(pool)
    pending = {pool.submit(time.sleep, 0.01) for _ in range(64)}
    while True:
        done = {future for future in pending if future.done()}
        pending -= done
        pending |= {pool.submit(time.sleep, 0.01) for _ in done}
        time.sleep(0.002)
"""


def program(folder: Path, text: str) -> list[str]:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(text))
    return [sys.executable, str(path)]


def samples(**truth: float) -> list[ContractSample]:
    plant = SyntheticWorkload(
        truth=NetworkParameters(
            blocking_seconds=truth.get("blocking", 0.0),
            cpu_seconds=truth["cpu"],
            dispatch_seconds=truth.get("dispatch", 20e-6),
            cpu_servers=2.0,
        ),
        threads=int(truth.get("threads", 16)),
        interval_seconds=1.0,
    )
    for _ in range(6):
        plant.tick()
    return list(plant.pod().samples)


def test_a_program_that_computes_is_told_about_its_cores() -> None:
    decision = decide_locally(samples(cpu=0.01), cores=2.0, max_threads=64)
    assert decision.target is not None
    assert 2 <= decision.target.threads <= 4


def test_a_program_that_waits_is_told_many_threads() -> None:
    decision = decide_locally(samples(cpu=0.001, blocking=0.04), cores=2.0, max_threads=64)
    assert decision.target is not None
    assert decision.target.threads >= 32


@pytest.mark.parametrize(
    ("most", "cores", "counts"),
    [(64, 2.0, [1, 2, 4, 8]), (3, 2.0, [1, 2, 3]), (64, 0.5, [1, 2, 4]), (1, 8.0, [1])],
)
def test_whole_runs_are_made_at_few_counts_around_the_cores(
    most: int, cores: float, counts: list[int]
) -> None:
    assert ladder(most, cores) == counts


@pytest.mark.parametrize(
    ("measured", "best"),
    [
        ([(16, 100.0)], 4),  # nothing else was run: the model's word
        ([(16, 100.0), (4, 120.0), (2, 125.0)], 4),  # within noise: the model's word
        ([(16, 100.0), (4, 120.0), (1, 200.0)], 1),
        ([(16, 200.0), (4, 120.0), (1, 60.0)], 16),
    ],
)
def test_what_is_measured_counts_more_than_what_is_predicted(
    measured: list[tuple[int, float]], best: int
) -> None:
    assert advised(4, measured) == best


@pytest.mark.parametrize(
    ("measured", "further"),
    [
        ([(4, 100.0), (8, 200.0)], [16]),  # the largest is the best: there may be more
        ([(4, 100.0), (8, 105.0)], []),
        ([(4, 100.0), (8, 200.0), (16, 150.0)], []),
        ([(4, 100.0), (60, 900.0)], [64]),
        ([(4, 100.0), (64, 900.0)], []),
    ],
)
def test_the_search_goes_on_upwards_while_it_pays(
    measured: list[tuple[int, float]], further: list[int]
) -> None:
    assert _further(measured, 64) == further


def test_a_busy_machine_is_not_charged_to_the_program() -> None:
    busy = [
        replace(s, cpu_usage_seconds_total=2.0 * (s.sampled_at_seconds - 999_000.0))
        for s in samples(cpu=0.0001, blocking=0.01, threads=4)
    ]
    decision = decide_locally(busy, cores=2.0, max_threads=64)
    assert decision.target is not None
    assert decision.target.threads >= 32


def test_a_running_program_is_followed_and_told(tmp_path: Path) -> None:
    with LocalProgram(program(tmp_path, WAITING)) as running:
        assert running.wait_for_metrics(seconds=30)
        running.set_threads(7)
        assert running.wait_until_applied(7)
    assert running.exit_status is not None


def test_a_proxy_of_the_environment_does_not_stand_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with LocalProgram(program(tmp_path, WAITING)) as running:
        assert running.wait_for_metrics(seconds=10)


def test_a_program_that_answers_with_garbage_serves_nothing(tmp_path: Path) -> None:
    garbage = """
        import os, pathlib, socket

        listener = socket.create_server(("127.0.0.1", int(os.environ["SLIMSCALE_METRICS_PORT"])))
        while True:
            connection, _ = listener.accept()
            connection.recv(4096)
            connection.sendall(b"what?" * 3)
            connection.close()
            pathlib.Path(__file__).with_name("answered").touch()
    """
    with LocalProgram(program(tmp_path, garbage)) as running:
        while not (tmp_path / "answered").exists():
            assert running.sample() is None
            assert running.exit_status is None


def test_a_program_is_stopped_when_measuring_fails(tmp_path: Path) -> None:
    with (
        pytest.raises(SlimError, match="served no metrics"),
        LocalProgram(program(tmp_path, "import time; time.sleep(60)")) as running,
    ):
        running.wait_for_metrics(seconds=0.1)
    assert running.exit_status is not None


def test_a_program_that_ends_by_itself_is_run_at_each_count(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = program(tmp_path, "import os; print('ran with', os.environ.get('OMP_NUM_THREADS'))")
    advise(command=command, max_threads=2, seconds=1, cpus=2.0, probe=True, png="")
    out = capfd.readouterr().out
    assert "ran with 1" in out
    assert "ran with 2" in out
    assert "best:" in out


def test_a_failing_program_ends_with_its_status(tmp_path: Path) -> None:
    with pytest.raises(SlimError, match="status 3 at 2 threads"):
        run_to_end(program(tmp_path, "raise SystemExit(3)"), 2)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(SlimError, match="no-such-program"):
        run_to_end(["no-such-program"], 1)
