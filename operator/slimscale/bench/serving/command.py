"""What `slimscale bench serving` does, once its options are read."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from slimscale.bench.progress import TerminalProgress
from slimscale.bench.serving.field import SYSTEMS, build_system
from slimscale.bench.serving.gate import Gate
from slimscale.bench.serving.generator import Generator
from slimscale.bench.serving.judge import Claim, judge, judge_overload
from slimscale.bench.serving.model import build_model, write_payload
from slimscale.bench.serving.neutral import MLPERF_SHARES, verdict_of
from slimscale.bench.serving.overload import OVERLOADED, overload
from slimscale.bench.serving.plan import Plan, groups_of
from slimscale.bench.serving.records import Journal
from slimscale.bench.serving.report import STEM, write_report
from slimscale.bench.serving.runner import run_plan
from slimscale.bench.serving.summary import Summary, summarise
from slimscale.bench.serving.systems import Dialect, Setting
from slimscale.bench.serving.tables import word_of
from slimscale.exceptions import SlimError

__all__ = ["Request", "bench_serving"]

FULL_CLIENTS = (1, 2, 4, 8, 16, 32, 64)
FULL_SHARES = (0.5, 0.8, 1.1, 2.0, 3.5)
FULL_BURSTS = (0.5, 1.1)
QUICK_CLIENTS, QUICK_SHARES = (1, 8, 64), (0.5, 1.1, 3.5)
QUICK_SYSTEMS = ("direct", "window-50ms", "slimscale")
PLAIN_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Request:
    """The options of the command line. Empty tuples: the usual ones."""

    quick: bool
    out: Path | None
    systems: tuple[str, ...]
    clients: tuple[int, ...]
    loads: tuple[float, ...]
    """Shares of the unbatched capacity."""
    repetitions: int
    seconds: float
    work: Path
    binary: bool
    model: Path | None
    trace: Path | None
    mlperf: bool
    target_milliseconds: float
    stop_after_seconds: float | None
    lock: Path | None
    quiet: Path | None
    seed: int = 1
    only_list: bool = False
    only_report: bool = False
    overload_seconds: float = 0.0
    """Above 0: overload our own systems, each for so long, in place of the plan."""


def bench_serving(request: Request) -> bool:
    """Run and print; with `out`, write tables and plots. True when the plan is done.

    Raises SlimError for names and files that are not there.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    if request.only_list:
        console.print("\n".join(SYSTEMS), highlight=False)
        return True
    plan = _plan(request)
    setting, payloads = _prepare(request)
    journal = Journal.load(request.work / f"{_key(request, plan, setting)}.jsonl")
    done = True
    if request.overload_seconds:
        _overload(request, setting, payloads, journal)
    elif not request.only_report:
        with TerminalProgress(console) as progress:
            done = run_plan(
                plan,
                journal,
                progress,
                build=lambda name: build_system(name, setting),
                payloads=payloads,
                verdict=partial(
                    verdict_of, setting=setting, target_milliseconds=request.target_milliseconds
                ),
                gate=Gate(request.lock, request.quiet),
                seconds=request.stop_after_seconds,
            )
    _print(journal, plan, request, console)
    if not done:
        console.print("not all is measured yet: the same command goes on", highlight=False)
    if request.out is not None:
        for path in write_report(
            journal,
            plan,
            request.out,
            command=_command(request),
            bodies="binary tensors" if request.binary else "JSON",
            model=_model_words(setting),
            target_milliseconds=request.target_milliseconds,
            stem=f"{STEM}-binary" if request.binary else STEM,
        ):
            console.print(f"wrote {path}", highlight=False)
    return done


def _overload(
    request: Request, setting: Setting, payloads: dict[str, Path], journal: Journal
) -> None:
    gate = Gate(request.lock, request.quiet, pause_seconds=0.0)
    try:
        with Generator() as generator:
            for name in OVERLOADED:
                if request.systems and name not in request.systems:
                    continue
                system = build_system(name, setting)
                found = overload(
                    system, generator, payload=payloads[system.dialect],
                    seconds=request.overload_seconds, seed=request.seed, gate=gate,
                )  # fmt: skip
                journal.keep_overload(found)
    finally:
        gate.close()


def _plan(request: Request) -> Plan:
    unknown = [name for name in request.systems if name not in SYSTEMS]
    if unknown:
        raise SlimError(f"no system {unknown[0]!r}; `slimscale bench serving --list` names them")
    systems = request.systems or (QUICK_SYSTEMS if request.quick else tuple(SYSTEMS))
    if request.binary and not request.systems:
        systems = tuple(name for name in systems if name.startswith(("direct", "window", "slim")))
    shares = request.loads or (QUICK_SHARES if request.quick else FULL_SHARES)
    if request.trace is not None and not request.trace.exists():
        raise SlimError(
            f"no trace {request.trace}; leave out --trace, or name a file of data/traces"
        )
    return Plan(
        systems=tuple(dict.fromkeys(("direct", *systems))),
        groups=groups_of(
            request.clients or (QUICK_CLIENTS if request.quick else FULL_CLIENTS),
            shares,
            bursts=() if request.quick else FULL_BURSTS,
            trace=request.trace is not None,
            mlperf=MLPERF_SHARES if request.mlperf and not request.binary else (),
        ),
        repetitions=request.repetitions or (1 if request.quick else 3),
        seconds=request.seconds or (0.8 if request.quick else 1.5),
        warm_seconds=0.3,
        seed=request.seed,
        trace=request.trace,
    )


def _prepare(request: Request) -> tuple[Setting, dict[str, Path]]:
    """The model and the bodies of the requests, made once in the work folder."""
    name = "given" if request.model is not None else "built"
    models = (request.work / f"models-{name}").absolute()
    setting = Setting(models=models, work=request.work.absolute())
    if request.model is not None:
        if not request.model.exists():
            raise SlimError(f"no model {request.model}; leave out --model, or name an ONNX file")
        setting.model_file.parent.mkdir(parents=True, exist_ok=True)
        setting.model_file.write_bytes(request.model.read_bytes())
    elif not setting.model_file.exists():
        build_model(setting.model_file)
    payloads = {}
    for dialect in (Dialect.V2, Dialect.V2_BINARY, Dialect.ROWS):
        spoken = Dialect.V2_BINARY if request.binary and dialect == Dialect.V2 else dialect
        payloads[dialect] = models / f"{spoken}.json"
        write_payload(setting.model_file, payloads[dialect], dialect=spoken)
    return setting, payloads


def _key(request: Request, plan: Plan, setting: Setting) -> str:
    """Runs that may be mixed in one table have the same key."""
    facts = {
        "seconds": plan.seconds,
        "warm": plan.warm_seconds,
        "seed": plan.seed,
        "binary": request.binary,
        "systems": sorted(plan.systems),
        "groups": [[load.label for load in group.loads] for group in plan.groups],
        "model": hashlib.sha256(setting.model_file.read_bytes()).hexdigest(),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    return f"serving-{digest}"


def _model_words(setting: Setting) -> str:
    size = setting.model_file.stat().st_size / 1e6
    digest = hashlib.sha256(setting.model_file.read_bytes()).hexdigest()[:12]
    return f"{size:.1f} MB, sha256 {digest}"


def _print(journal: Journal, plan: Plan, request: Request, console: Console) -> None:
    loads = [load.label for group in plan.groups for load in group.loads]
    summary = summarise(journal.cells, systems=plan.systems, loads=loads)
    for part in (_starting(loads, "closed"), _starting(loads, "poisson", "mmpp", "trace")):
        if part and summary.cells:
            console.print(_table(summary, part))
    for name, why in journal.missing.items():
        console.print(f"missing: {name}: {why}", highlight=False, markup=False)
    if summary.cells:
        claims = Table("claim", "measured", "reached")
        _add_claims(claims, judge(summary, target_milliseconds=request.target_milliseconds))
        console.print(claims)
    for found in journal.overloads.values():
        claims = Table("claim", "measured", "reached")
        _add_claims(claims, judge_overload(found))
        console.print(claims)


def _add_claims(shown: Table, claims: Sequence[Claim]) -> None:
    for claim in claims:
        shown.add_row(claim.text, claim.measured, word_of(claim.reached))


def _starting(loads: Sequence[str], *kinds: str) -> list[str]:
    return [load for load in loads if load.startswith(kinds)]


def _table(summary: Summary, loads: Sequence[str]) -> Table:
    shown = Table("requests/s; p50/p99 ms", *loads)
    for system in summary.systems:
        row = [system]
        for load in loads:
            rate = summary.value(system, load, "per_second")
            p50, p99 = (summary.value(system, load, name) for name in ("p50", "p99"))
            row.append(
                f"{rate:.0f}; {p50:.1f}/{p99:.0f}"
                if rate is not None and p50 is not None and p99 is not None
                else "-"
            )
        shown.add_row(*row)
    return shown


def _command(request: Request) -> str:
    words = ["slimscale bench serving"]
    words += ["--quick"] if request.quick else []
    words += ["--binary"] if request.binary else []
    words += [f"--systems {','.join(request.systems)}"] if request.systems else []
    words += [f"--clients {','.join(map(str, request.clients))}"] if request.clients else []
    if request.loads:
        words.append(f"--loads {','.join(f'{100 * share:g}' for share in request.loads)}")
    words += [f"--repetitions {request.repetitions}"] if request.repetitions else []
    words += [f"--seconds {request.seconds:g}"] if request.seconds else []
    words += [f"--model {request.model}"] if request.model is not None else []
    words += [f"--trace {request.trace}"] if request.trace is not None else []
    words += ["--mlperf"] if request.mlperf else []
    words.append(f"--out {request.out}")
    return " ".join(words)
