"""docs/results/threads-real.*: what `real` measured, compared on the same phases."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from slimscale.bench.curves import PhaseCurves
from slimscale.bench.native.real import (
    BEST_PER_PHASE,
    PHASES,
    read_lines,
    real_scenario,
    static_counts,
)
from slimscale.bench.runner import TICK_SECONDS, RunRecord
from slimscale.bench.statistics import geometric_mean
from slimscale.simulate.load import LoadScenario

__all__ = ["Scored", "real_markdown", "scored_scenarios", "write_real"]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scored:
    """One scenario and seed. Everything by policy, static rules under their own names."""

    scenario: str
    quota_cores: float | None
    seed: int
    phase_rates: Mapping[str, tuple[float, ...]]
    """Tasks a second in each phase."""
    best_threads: tuple[int, ...]
    runs: Mapping[str, RunRecord]
    load_average: tuple[float, float]
    ran: Mapping[str, str]
    """When each run ended, and the load average then."""

    def tasks_per_second(self, policy: str) -> float:
        return float(np.mean(self.phase_rates[policy]))

    def speed_up(self, policy: str, base: str) -> float:
        """Geometric mean over the phases, so that one with many small tasks does not decide all."""
        pairs = zip(self.phase_rates[policy], self.phase_rates[base], strict=True)
        return geometric_mean([max(a, 1e-9) / max(b, 1e-9) for a, b in pairs])

    def regret(self, policy: str) -> float:
        """1 - the mean over the phases of what it did over what the best count for the phase did."""
        best = self.phase_rates[BEST_PER_PHASE]
        return 1.0 - float(np.mean(np.asarray(self.phase_rates[policy]) / np.asarray(best)))


def scored_scenarios(output: Path) -> list[Scored]:
    """Scenarios that have all runs that the comparison needs: at least the best per phase."""
    grouped: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for line in read_lines(output):
        grouped.setdefault((line["scenario"], line["seed"]), []).append(line)
    found = []
    for (name, seed), lines in sorted(grouped.items()):
        ran = {
            ln["run"]["policy"]: f"{ln.get('measured_at', '')[11:16]}, {ln['load_average']:.0f}"
            for ln in lines
            if "run" in ln
        }
        curves = next((PhaseCurves.from_json(ln["curves"]) for ln in lines if "curves" in ln), None)
        runs = {ln["run"]["policy"]: RunRecord.from_json(ln["run"]) for ln in lines if "run" in ln}
        if curves is None or BEST_PER_PHASE not in runs:
            continue
        text = name.rpartition("-")[2]
        quota = None if text == "none" else float(text)
        scenario = real_scenario(
            quota,
            cores=int(lines[0]["machine"]["cores"]),
            phase_seconds=curves.seconds[0],
        )
        runs = _named(runs, scenario, curves)
        loads = [float(ln["load_average"]) for ln in lines]
        found.append(
            Scored(
                scenario=name,
                quota_cores=quota,
                seed=seed,
                phase_rates={
                    policy: _phase_rates(run, curves.seconds[0]) for policy, run in runs.items()
                },
                best_threads=tuple(curves.best_threads(start) for start in curves.starts),
                runs=runs,
                load_average=(min(loads), max(loads)),
                ran=_named(ran, scenario, curves),
            )
        )
    return found


def _named(runs: Mapping[str, T], scenario: LoadScenario, curves: PhaseCurves) -> dict[str, T]:
    """The static rules under their own names instead of under their counts."""
    named = {policy: run for policy, run in runs.items() if not policy.startswith("static-")}
    for rule, count in static_counts(scenario, curves).items():
        if (run := runs.get(f"static-{count}")) is not None:
            named[rule] = run
    return named


def _phase_rates(run: RunRecord, phase_seconds: float) -> tuple[float, ...]:
    """A last tick that was late is missing: the others of its phase speak for it."""
    ticks = round(phase_seconds / TICK_SECONDS)
    parts = [run.tasks[i * ticks : (i + 1) * ticks] for i in range(len(PHASES))]
    return tuple(float(np.mean(part)) / TICK_SECONDS for part in parts)


def write_real(output: Path, folder: Path) -> tuple[Path, ...]:
    """Writes threads-real.json, .md and .png; returns their paths. Raises ValueError if empty."""
    scored = scored_scenarios(output)
    if not scored:
        raise ValueError(f"{output} has no complete scenario; run `real` first")
    folder.mkdir(parents=True, exist_ok=True)
    paths = tuple(folder / f"threads-real.{ending}" for ending in ("json", "md", "png"))
    machine = read_lines(output)[0]["machine"]
    paths[0].write_text(json.dumps(_document(scored, machine), indent=1) + "\n")
    paths[1].write_text(real_markdown(scored, machine))
    _draw(scored, paths[2])
    return paths


def _document(scored: Sequence[Scored], machine: Mapping[str, Any]) -> dict[str, object]:
    return {
        "machine": dict(machine),
        "phases": list(PHASES),
        "scenarios": [
            {
                "scenario": s.scenario,
                "seed": s.seed,
                "quota_cores": s.quota_cores,
                "load_average": list(s.load_average),
                "best_threads": list(s.best_threads),
                "policies": {
                    policy: {
                        "tasks_per_second": [float(f"{r:.5g}") for r in rates],
                        "regret": round(s.regret(policy), 4),
                        "changes": len(s.runs[policy].changes) - 1,
                        "threads": list(s.runs[policy].threads),
                    }
                    for policy, rates in s.phase_rates.items()
                },
            }
            for s in scored
        ],
    }


def real_markdown(scored: Sequence[Scored], machine: Mapping[str, Any]) -> str:
    loads = [load for s in scored for load in s.load_average]
    seconds = max(run.duration_seconds for run in scored[0].runs.values()) / len(PHASES)
    lines = [
        "# Policies on the native pool, with real threads and quotas",
        "",
        "Written by `python -m slimscale.bench.native real`; do not edit.",
        "",
        f"- {machine['cores']} CPUs ({machine['cpu_model']}), Linux {machine['kernel']}; load"
        f" average {min(loads):.1f} to {max(loads):.1f}, the measured threads included",
        f"- {len(PHASES)} loads one after the other ({', '.join(PHASES)}), {seconds:.0f} s each;"
        f" {len(scored)} scenarios (quota, seed), policies in random order, one at a time",
        "- counts that never change are run 5 s a phase and counted for the whole phase; r, 1+r and"
        " Goetz are set from the known parts of the first load",
        "- the operator: interval 1 s, window 3 s, dwell 4 s (a fifth of its defaults), a change holds"
        " 0.7 s after the decision; its tuning is in the figures",
        "- *x base*: geometric mean over phases and scenarios of the throughput against that base."
        " *regret*: 1 - mean over phases of throughput over that of the best count for each phase,"
        " which is known there from the phase's first moment on",
        "- *ended, load*: when a run ended (UTC) and the load average then: runs that lie far from the"
        " others, or met other work, compare less well",
        "",
    ]
    policies = list(dict.fromkeys(p for s in scored for p in s.phase_rates))
    bases = [b for b in _BASES if all(b in s.phase_rates for s in scored)]
    head = ["policy", "regret", "worst regret", *(f"x {b}" for b in bases), "changes"]
    lines += ["## All quotas", "", _row(head), _rule(len(head))]
    for policy in policies:
        members = [s for s in scored if policy in s.phase_rates]
        regrets = [s.regret(policy) for s in members]
        cells = [f"{100 * np.mean(regrets):.1f} %", f"{100 * max(regrets):.1f} %"]
        cells += [
            f"{geometric_mean([s.speed_up(policy, base) for s in members]):.2f}" for base in bases
        ]
        changes = np.mean([len(s.runs[policy].changes) - 1 for s in members])
        lines.append(_row([policy, *cells, f"{changes:.0f}"]))
    for s in scored:
        quota = "no quota" if s.quota_cores is None else f"quota {s.quota_cores:g}"
        best = ", ".join(str(k) for k in s.best_threads)
        lines += ["", f"## {quota}, seed {s.seed}", "", f"Best counts by phase: {best}.", ""]
        head = [
            "policy",
            *(f"{name}, tasks/s" for name in PHASES),
            "mean tasks/s",
            "regret",
            "ended, load",
        ]
        lines += [_row(head), _rule(len(head))]
        for policy in sorted(s.phase_rates, key=s.regret):
            rates = [f"{rate:,.0f}" for rate in s.phase_rates[policy]]
            lines.append(
                _row(
                    [
                        policy,
                        *rates,
                        f"{s.tasks_per_second(policy):,.0f}",
                        f"{100 * s.regret(policy):.1f} %",
                        s.ran[policy],
                    ]
                )
            )
    lines += ["", "![Regret of the policies, and their thread counts over time](threads-real.png)"]
    return "\n".join([*lines, ""])


_BASES = ("unset", "floor-of-quota", "fixed-8", "fixed-16", "fixed-32", "best-static-hindsight")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(columns: int) -> str:
    return "|---|" + "---:|" * (columns - 1)


def _draw(scored: Sequence[Scored], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1 + len(scored), 1, figsize=(10, 3 * (1 + len(scored))), layout="constrained"
    )
    policies = list(dict.fromkeys(p for s in scored for p in s.phase_rates))
    mean = {
        p: 100 * float(np.mean([s.regret(p) for s in scored if p in s.phase_rates]))
        for p in policies
    }
    ordered = sorted(policies, key=lambda p: mean[p])
    axes[0].barh(ordered, [mean[p] for p in ordered])
    axes[0].set(title="mean regret against the best count for each phase, %")
    axes[0].tick_params(axis="y", labelsize=7)
    for axis, s in zip(axes[1:], scored, strict=True):
        for policy, run in s.runs.items():
            if len(run.changes) < 2 and policy != BEST_PER_PHASE:
                continue
            at = [t for t, _ in run.changes] + [run.duration_seconds]
            counts = [k for _, k in run.changes] + [run.changes[-1][1]]
            style = {"color": "k", "linewidth": 2.5} if policy == BEST_PER_PHASE else {}
            axis.step(at, counts, where="post", label=policy, **style)
        axis.set(title=s.scenario, xlabel="seconds", ylabel="threads", yscale="log")
        axis.legend(fontsize=6)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
