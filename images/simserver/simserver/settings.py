"""What the environment of the process says. Every value is checked where it is read."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .engine import split_address
from .phases import Schedule, parse_schedule

__all__ = ["Settings", "SettingsError", "read_settings"]

MOST_THREADS = 256
DEFAULT_SCHEDULE = "light:60,heavy:60,blocking:60"


class SettingsError(ValueError):
    """The message names the variable, its value and what to write."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Durations in seconds; steps of physics a task."""

    threads: int
    schedule: Schedule
    phase_file: Path
    engine: tuple[str, int] | None
    """None: start one as a child process."""
    engine_wait_seconds: float
    heavy_steps: int
    blocking_steps: int
    light_environments: int
    light_batch: int
    """Environments that one round of lock-step takes."""
    seed: int


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Raises SettingsError; a thread count that makes no sense must not become 1 in silence."""
    values = os.environ if environ is None else environ
    engine = values.get("SIMSERVER_ENGINE", "child").strip()
    try:
        schedule = parse_schedule(values.get("SIMSERVER_SCHEDULE", DEFAULT_SCHEDULE))
        address = None if engine == "child" else split_address(engine)
    except ValueError as error:
        raise SettingsError(f"SIMSERVER_SCHEDULE or SIMSERVER_ENGINE: {error}") from None
    return Settings(
        threads=_integer(values, "SIM_THREADS", 16, 1, MOST_THREADS),
        schedule=schedule,
        phase_file=Path(values.get("SIMSERVER_PHASE_FILE", "/etc/simserver/phase")),
        engine=address,
        engine_wait_seconds=_integer(values, "SIMSERVER_ENGINE_WAIT_MS", 40, 1, 5000) / 1000.0,
        heavy_steps=_integer(values, "SIMSERVER_HEAVY_STEPS", 400, 1, 100_000),
        blocking_steps=_integer(values, "SIMSERVER_BLOCKING_STEPS", 200, 2, 100_000),
        light_environments=_integer(values, "SIMSERVER_LIGHT_ENVIRONMENTS", 256, 1, 65536),
        light_batch=_integer(values, "SIMSERVER_LIGHT_BATCH", 8, 1, 4096),
        seed=_integer(values, "SIMSERVER_SEED", 1, 0, 2**31 - 1),
    )


def _integer(values: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = values.get(name, "").strip()
    if not text:
        return default
    # A plain int() would also take "1_6" and "+16", which no other runtime does.
    if not (text.isascii() and text.isdigit() and least <= int(text[:12]) <= most):
        raise SettingsError(f"{name} is {text[:40]!r}; write a whole number {least} to {most}")
    return int(text)
