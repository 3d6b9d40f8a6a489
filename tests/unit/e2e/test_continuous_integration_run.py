import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / ".ci" / "run"
MAKEFILE = """\
verify:
\t@exit $${VERIFY_RC:-0}
test:
\t@exit $${TEST_RC:-0}
.venv/.ready:
\t@exit $${READY_RC:-0}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose stages do nothing but end with the exit status they are told."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(SCRIPT, tmp_path / ".ci" / "run")
    (tmp_path / "Makefile").write_text(MAKEFILE)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "python $*"; exit ${SMOKE_RC:-0}\n')
    python.chmod(0o755)
    return tmp_path


def run(checkout: Path, **status: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [checkout / ".ci" / "run"],
        env={"PATH": os.environ["PATH"], **status},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_passes_when_every_stage_does(checkout: Path) -> None:
    done = run(checkout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "python -m pytest e2e --with-e2e -m smoke" in done.stdout
    assert "==== passed" in done.stdout


# 5 is pytest's "no tests collected"
@pytest.mark.parametrize("stage", ["VERIFY_RC", "TEST_RC", "SMOKE_RC", "READY_RC"])
@pytest.mark.parametrize("status", ["1", "5"])
def test_it_fails_when_any_stage_fails(checkout: Path, stage: str, status: str) -> None:
    done = run(checkout, **{stage: status})
    assert done.returncode == 1
    assert "==== FAILED" in done.stdout


def test_a_failed_stage_hides_no_later_one(checkout: Path) -> None:
    done = run(checkout, VERIFY_RC="1")
    assert "python -m pytest" in done.stdout
