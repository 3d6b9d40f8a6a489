import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from e2e.progress import StepFailed, Steps


def quiet_steps(folder: Path) -> Steps:
    return Steps(folder, console=Console(file=io.StringIO()))


def test_a_failed_step_shows_the_end_of_its_log_and_where_the_rest_is(tmp_path: Path) -> None:
    steps = quiet_steps(tmp_path)
    program = "print('\\n'.join(f'line {n}' for n in range(100))); raise SystemExit(3)"
    with (
        pytest.raises(StepFailed, match="exited with 3") as failure,
        steps.step("build kubelet") as step,
    ):
        step.run(sys.executable, "-c", program)
    message = str(failure.value)
    assert "line 99" in message
    assert "line 50" not in message
    assert str(tmp_path / "build-kubelet.log") in message
    assert "line 50" in (tmp_path / "build-kubelet.log").read_text()


def test_a_command_that_is_not_installed_fails_its_step(tmp_path: Path) -> None:
    with pytest.raises(StepFailed, match="no-such-tool"), quiet_steps(tmp_path).step("x") as step:
        step.run("no-such-tool")


def test_either_end_of_a_failed_pipe_fails_its_step(tmp_path: Path) -> None:
    good, bad = (sys.executable, "-c", "pass"), (sys.executable, "-c", "raise SystemExit(1)")
    for producer, consumer in ((good, bad), (bad, good)):
        with pytest.raises(StepFailed), quiet_steps(tmp_path).step("x") as step:
            step.pipe(producer, consumer)
    with quiet_steps(tmp_path).step("x") as step:
        step.pipe(good, good)


def test_a_done_step_says_how_long_it_took(tmp_path: Path) -> None:
    out = io.StringIO()
    steps = Steps(tmp_path, console=Console(file=out))
    with steps.step("build kubelet") as step:
        step.run(sys.executable, "-c", "print('hello')")
    assert "done build kubelet" in out.getvalue()
    assert [name for name, _ in steps.timings] == ["build kubelet"]
