"""MLPerf's load generator as judge: which offered loads does a system pass, by its Server scenario."""

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slimscale.bench.serving.environments import PEERS, environment
from slimscale.bench.serving.processes import ServerFailed
from slimscale.bench.serving.systems import Setting, System

__all__ = ["MLPERF_SHARES", "MLPERF_SYSTEMS", "Verdict", "verdict_of"]

MLPERF_SYSTEMS = ("direct", "window-50ms", "slimscale", "slimscale-routed")
MLPERF_SHARES = (0.5, 0.8, 1.1, 2.0, 3.5)
PERCENTILE = 0.99
CONNECTIONS = 64
RUN_SECONDS = 3.0
_SLACK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge said of one system at one offered load."""

    system: str
    share: float
    """Of the unbatched capacity."""
    repetition: int
    target_per_second: float
    completed_per_second: float
    valid: bool
    """The judge's own word: p99 under the target, and enough queries."""
    p50: float
    p99: float
    """Milliseconds."""
    faults: int
    """Wrong or lost answers, which the judge cannot see: our driver compares them."""
    first_fault: str

    @property
    def passed(self) -> bool:
        return self.valid and not self.faults

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def verdict_of(
    system: System,
    setting: Setting,
    *,
    payload: Path,
    capacity: float,
    share: float,
    repetition: int,
    target_milliseconds: float,
    run: Callable[[Sequence[str], float], str] | None = None,
) -> Verdict:
    """One run of the Server scenario. Raises Missing without the judge, ServerFailed when it fails."""
    python = environment("mlperf", setting.work) / "bin" / "python"
    job = setting.work / "mlperf-job.json"
    rate = capacity * share
    job.write_text(
        json.dumps(
            {
                "host": "127.0.0.1",
                "port": system.port,
                "path": system.path,
                "payload": str(payload),
                "per_second": rate,
                "target_milliseconds": target_milliseconds,
                "percentile": PERCENTILE,
                "seconds": RUN_SECONDS,
                "connections": CONNECTIONS,
            }
        )
    )
    command = [str(python), str(PEERS / "mlperf_judge.py"), str(job)]
    said = json.loads((run or _run)(command, RUN_SECONDS * 4 + _SLACK_SECONDS))
    summary = said["summary"]
    return Verdict(
        system=system.name,
        share=share,
        repetition=repetition,
        target_per_second=round(rate, 1),
        completed_per_second=float(summary["Completed samples per second"]),
        valid=summary["Result is"] == "VALID",
        p50=float(summary["50.00 percentile latency (ns)"]) / 1e6,
        p99=float(summary["99.00 percentile latency (ns)"]) / 1e6,
        faults=said["faults"],
        first_fault=said["first_fault"],
    )


def _run(command: Sequence[str], seconds: float) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServerFailed(f"the judge did not end within {seconds:g} s") from error
    if done.returncode:
        raise ServerFailed(f"the judge ended with {done.returncode}: {done.stderr[-300:]}")
    return done.stdout.strip().splitlines()[-1]
