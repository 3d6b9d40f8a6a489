"""The environment with what requirements/clients.txt pins: made once, kept beside the cluster's state."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from e2e.paths import ROOT, STATE

__all__ = ["run_client"]

REQUIREMENTS = ROOT / "requirements/clients.txt"
FOLDER = STATE / "clients"
INSTALL_SECONDS = 900
RUN_SECONDS = 120


def python() -> Path:
    """The environment's interpreter; installs on the first call and after a change of the pins."""
    stamp = FOLDER / "installed"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    found = FOLDER / "bin" / "python"
    if found.exists() and stamp.exists() and stamp.read_text() == wanted:
        return found
    subprocess.run((sys.executable, "-m", "venv", "--clear", str(FOLDER)), check=True)
    subprocess.run(
        (str(found), "-m", "pip", "install", "-q", "--require-hashes", "-r", str(REQUIREMENTS)),
        check=True,
        timeout=INSTALL_SECONDS,
    )
    stamp.write_text(wanted)
    return found


def run_client(script: str, door: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a script of this folder prints, which is one JSON object.

    Raises:
        AssertionError: it ended with another status than 0; the message is what it said.
    """
    done = subprocess.run(
        (str(python()), "-I", str(Path(__file__).with_name(script)), door),
        input=json.dumps(inputs),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
