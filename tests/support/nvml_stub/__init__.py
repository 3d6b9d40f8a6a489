"""Builds the NVML stub and runs code against it in a child process: a library is loaded only once."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["DRIVER_NOT_LOADED", "GPU", "GPU_IS_LOST", "NOT_SUPPORTED", "NO_PERMISSION"]
__all__ += ["UNINITIALIZED", "build", "environment", "read_each", "settings"]

SOURCE = Path(__file__).with_name("nvml_stub.c")

UNINITIALIZED, NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, GPU_IS_LOST = 1, 3, 4, 9, 15

GPU: Mapping[str, object] = {
    "gpu0.uuid": "GPU-a",
    "gpu0.total": 8_000_000_000,
    "gpu0.free": 6_000_000_000,
    "gpu0.utilisation": 37,
    "gpu0.power": 71_500,
}

CHILD = """
import json, os, sys
from pathlib import Path
from dataclasses import asdict
from slimscale.devices.nvml import Nvml
import logging
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
plan = json.loads(sys.argv[1])
clock = [0.0]
nvml = Nvml(wanted=plan["wanted"], now=lambda: clock[0])
results = []
for step in plan["steps"]:
    clock[0] += step["seconds"]
    Path(os.environ["NVML_STUB_FILE"]).write_text(step["settings"])
    results.append([asdict(reading) for reading in nvml.read()])
nvml.close()
nvml.close()
print(json.dumps(results))
"""


def build(folder: Path, *flags: str) -> Path:
    """Compile `libnvidia-ml.so.1` into `folder`; give the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags,
         "-o", folder / "libnvidia-ml.so.1", SOURCE],
        check=True,
    )  # fmt: skip
    return folder


def settings(values: Mapping[str, object]) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items())


def environment(library: Path | None, file: Path) -> dict[str, str]:
    """Of a child that finds the stub, or no library at all."""
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    env["NVML_STUB_FILE"] = str(file)
    if library is not None:
        env["LD_LIBRARY_PATH"] = str(library)
    return env


def read_each(
    library: Path | None,
    folder: Path,
    steps: list[tuple[float, Mapping[str, object]]],
    *,
    wanted: tuple[str, ...] = (),
) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """Read once for each step, (seconds later, settings); the readings, and the lines of the log."""
    plan = {
        "wanted": wanted,
        "steps": [{"seconds": s, "settings": settings(values)} for s, values in steps],
    }
    child = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(plan)],
        env=environment(library, folder / "stub.txt"),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout), child.stderr.splitlines()
