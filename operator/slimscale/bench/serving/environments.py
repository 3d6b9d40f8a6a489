"""Environments of other projects' servers: made once in the work folder, from pinned requirements."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from slimscale.bench.serving.systems import Missing

__all__ = ["PEERS", "environment"]

PEERS = Path(__file__).parent / "peers"
_INSTALL_SECONDS = 900
_MARK = ".complete"


def environment(name: str, work: Path) -> Path:
    """Folder of the environment that `peers/<name>.txt` describes, with `bin/python`; made if need be.

    Packages come from the index that pip is set up with. Raises Missing with pip's last words.
    """
    requirements = PEERS / f"{name}.txt"
    if not requirements.exists():
        raise Missing(f"no requirements for {name}")
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    folder = (work / "environments" / f"{name}-{digest}").absolute()
    if (folder / _MARK).exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    log = work / "logs" / f"install-{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        for command in _commands(folder, requirements):
            try:
                done = subprocess.run(  # noqa: S603 - fixed words and paths of our own
                    command,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=_INSTALL_SECONDS,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Missing(f"not installed: {error}") from error
            if done.returncode:
                words = log.read_text(errors="replace").strip().splitlines()[-1:]
                raise Missing(f"not installed: {' '.join(words)[:200]}")
    (folder / _MARK).touch()
    return folder


def _commands(folder: Path, requirements: Path) -> list[list[str]]:
    uv = shutil.which("uv")
    python = str(folder / "bin" / "python")
    if uv is not None:
        return [
            [uv, "venv", "-q", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "-q", "--require-hashes", "--python", python, "-r", str(requirements)],
        ]  # fmt: skip
    return [
        [sys.executable, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "-q", "--require-hashes", "-r", str(requirements)],
    ]
