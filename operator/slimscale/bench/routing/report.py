"""docs/results/routing.*: tables, verdicts and plots of one benchmark of routing policies."""

import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slimscale.bench.markdown import table
from slimscale.bench.routing.claims import Claim, claims_of
from slimscale.bench.routing.figures import mean_of
from slimscale.bench.routing.first_experiment import beside_first_experiment
from slimscale.bench.routing.judge import Cell, Difference, cell_of, difference, hypervolume, pareto
from slimscale.bench.routing.plots import draw_front, draw_headline, draw_values
from slimscale.bench.routing.rules import LEARNED
from slimscale.bench.routing.runner import Results
from slimscale.bench.routing.suite import Headline, Plan, Played
from slimscale.simulate.routing.scene import WIDTHS

__all__ = ["STEM", "Report", "write_report"]

STEM = "routing"
FRONT_LOADS = (0.3, 0.7)
MOST_MISSED = 0.01
PAPER_LATENCY, PAPER_ENERGY = 0.9645, 0.9731
"""Slim Scheduler, arXiv 2510.09018: against random placement at the slimmest width's accuracy."""
WORST = (0.4, 3.0, 0.1)
"""Reference point of the hypervolume: p95 in seconds, joules a request, points of accuracy lost."""


@dataclass(frozen=True, slots=True)
class Report:
    plan: Plan
    played: Played
    headline: Headline
    pools: tuple[Results, ...]
    command: str
    wall_seconds: float

    @property
    def learned(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.plan.learned)


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write JSON, Markdown and plots into `folder`; what was written, the Markdown first."""
    folder.mkdir(parents=True, exist_ok=True)
    page, data = folder / f"{STEM}.md", folder / f"{STEM}.json"
    images = [folder / f"{STEM}-{name}.png" for name in ("values", "headline", "front")]
    data.write_text(
        json.dumps(_document(report), indent=1, allow_nan=False) + "\n", encoding="utf-8"
    )
    draw_values(report.played, report.learned, images[0])
    draw_headline(report.headline, report.learned, images[1])
    draw_front(report.played, images[2])
    page.write_text(_markdown(report, images), encoding="utf-8")
    return [page, data, *images]


def _document(report: Report) -> dict[str, Any]:
    played = report.played
    return {
        "ran": {
            "command": report.command,
            "machine": f"{platform.machine()} {platform.system()} Python {platform.python_version()}",
            "wall_seconds": round(report.wall_seconds, 1),
            "test_seeds": list(report.plan.test_seeds()),
            "validation_seeds": list(report.plan.validation_seeds()),
            "seconds": report.plan.seconds,
            "learned": {one.name: one.weights.version for one in report.plan.learned},
        },
        "claims": [claim.to_json() for claim in claims_of(played, report.learned)],
        "best": [{"cell": list(cell), "rule": name} for cell, name in played.best.items()],
        "bound": [{"cell": list(cell), "value": value} for cell, value in played.bound.items()],
        "six": [_entry(result) for result in played.test],
        "headline": {
            "random_stable_below": report.headline.random_stable_below,
            "random_slimmest_stable_below": report.headline.random_slimmest_stable_below,
            "least_seconds": {f"{k:g}": v for k, v in report.headline.least_seconds.items()},
            "least_joules": {f"{k:g}": v for k, v in report.headline.least_joules.items()},
            "runs": [_entry(result) for result in report.headline.results],
        },
        "pools": [_entry(result) for result in report.pools],
    }


def _entry(result: Results) -> dict[str, Any]:
    values = result.values("value")
    half = difference(values, np.zeros(len(values)))
    return {
        "cell": list(cell_of(result)),
        "devices": len(result.stage.scene.devices),
        "policy": result.player,
        "family": result.family,
        "value": half.to_json(),
        **{k: v for k, v in mean_of(list(result.runs)).to_json().items() if k != "value"},
    }


def _markdown(report: Report, images: Sequence[Path]) -> str:
    plan = report.plan
    parts = [
        "# Routing policies",
        f"Written by `{report.command}`. Simulated and modelled: the compiled data plane of"
        " `simulate/routing` ([how far it can be trusted](routing-simulator.md)), energy as watts"
        f" times busy time. {plan.test_traces} test traces of {plan.seconds:g} s for each cell, the"
        " first second left out; settings of rules were chosen on"
        f" {plan.validation_traces} validation traces of other seeds; learned policies were trained"
        " on yet others. Loads are shares of what the six devices can serve at a mean accuracy of"
        " 74.5 % (2,209 requests a second). Rules that use the plan are told the true mean load;"
        " learned policies are not.",
        "J of a request is 12 (accuracy - .703) - min(latency/SLO, 2) - .3 E - [late], E in joules"
        " (1.5 E in the regime energy). SLO 100 ms for 30 % and 300 ms for 70 %; a request is dropped"
        " at twice its SLO and counts as -3. Regimes: burst (2.33 times the load for 1 s, .43 times"
        " for 2.33 s, in the mean), stale (telemetry 200 ms old), cold (memory for 1.3 of the widest"
        " width a device), fault (five times slower for 1.5 s every 8 s a device), real (these four"
        " together), energy (weight times five), trace (gaps of a recorded trace, extreme on/off),"
        " shutdown (each device gone for 2 s every 20 s).",
        "## Goals",
        *_claims(report),
        f"![J by load and regime]({images[0].name})",
        "## Against the best rule of each cell",
        _cells(report),
        "## All policies",
        "Mean J of the best setting of each rule (chosen on validation traces for each regime and load).",
        *_families(report),
        "## Energy, latency, accuracy",
        *_fronts(report, images[2]),
        *_equal(report),
        "## The paper's headline, and the load",
        *_headline(report, images[1]),
        "## Pools never seen",
        *_pools(report),
        *beside_first_experiment(report.played),
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _shown(gap: Difference) -> str:
    return f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"


def _claims(report: Report) -> Iterator[str]:
    if not report.learned:
        yield "No learned policy took part (`--policy FILE`): what follows are the rules and the bound."
        return
    found: Sequence[Claim] = claims_of(report.played, report.learned)
    yield table(
        ["policy", "claim", "measured", "reached"],
        ([c.policy, c.text, c.measured, "yes" if c.reached else "**no**"] for c in found),
    )


def _cells(report: Report) -> str:
    played = report.played
    rows = []
    for cell, name in played.best.items():
        base = played.of(cell, name).values("value")
        spread = difference(base, np.zeros(len(base)))
        row = [
            cell[0], f"{cell[1]:g}", f"{played.bound[cell]:.3f}", name,
            f"{spread.mean:.3f} ({spread.low:.3f} to {spread.high:.3f})",
        ]  # fmt: skip
        seen = {
            result.player: float(result.values("value").mean())
            for result in played.test
            if cell_of(result) == cell and result.family != LEARNED
        }
        hindsight = max(seen, key=seen.__getitem__)
        row.append(f"{hindsight}: {seen[hindsight]:.3f}" if hindsight != name else "the same")
        row += [
            _shown(difference(played.of(cell, one).values("value"), base)) for one in report.learned
        ]
        rows.append(row)
    heads = ["regime", "load", "bound", "best rule", "its J (95 %)", "best in hindsight"]
    return table([*heads, *(f"{one} less it" for one in report.learned)], rows)


def _families(report: Report) -> Iterator[str]:
    played = report.played
    for regime in report.plan.regimes:
        loads = [load for name, load in played.best if name == regime]
        families = list(dict.fromkeys(f for load in loads for f in played.of_family[regime, load]))
        rows = []
        for family in families:
            values = [
                float(played.of((regime, load), played.of_family[regime, load][family])
                .values("value").mean())
                for load in loads
            ]  # fmt: skip
            rows.append((float(np.mean(values)), family, values))
        for one in report.learned:
            values = [
                float(played.of((regime, load), one).values("value").mean()) for load in loads
            ]
            rows.append((float(np.mean(values)), f"**{one}**", values))
        bound = [played.bound[regime, load] for load in loads]
        lines = [["LP bound", *(f"{value:.3f}" for value in bound)]]
        lines += [
            [name, *(f"{value:.3f}" for value in values)]
            for _, name, values in sorted(rows, key=lambda row: -row[0])
        ]
        yield f"### {regime}"
        yield table(["policy", *(f"load {load:g}" for load in loads)], lines)


def _points(report: Report, cell: Cell) -> dict[str, tuple[float, float, float]]:
    """p95, dynamic joules, points of accuracy below the widest."""
    most = 0.765
    found = {}
    for result in report.played.test:
        if cell_of(result) == cell:
            run = mean_of(list(result.runs))
            found[result.player] = (run.p95_seconds, run.dynamic_joules, most - run.accuracy)
    return found


def _fronts(report: Report, image: Path) -> Iterator[str]:
    yield (
        "Of what was tested, the policies that no other one beats in p95 latency, dynamic energy and"
        f" accuracy at once; hypervolume up to p95 {WORST[0]:g} s, {WORST[1]:g} J and"
        f" {100 * WORST[2]:g} points of accuracy lost, all of it together 1."
    )
    yield f"![Energy and latency]({image.name})"
    whole = WORST[0] * WORST[1] * WORST[2]
    rows = []
    for cell in report.played.best:
        if cell[0] not in {"base", "real"} or cell[1] not in FRONT_LOADS:
            continue
        points = _points(report, cell)
        front = pareto(points)
        rules = [point for name, point in points.items() if name not in report.learned]
        row = [f"{cell[0]} {cell[1]:g}", f"{hypervolume(rules, WORST) / whole:.4f}"]
        row += [
            f"{hypervolume([*rules, points[one]], WORST) / whole:.4f}" for one in report.learned
        ]
        row.append(", ".join(sorted(front)))
        rows.append(row)
    heads = [f"with {one}" for one in report.learned]
    if rows:
        yield table(["cell", "rules together", *heads, "on the front"], rows)


def _equal(report: Report) -> Iterator[str]:
    rows = []
    for (cell, one), name in report.played.equal.items():
        ours = mean_of(list(report.played.of(cell, one).runs))
        theirs = mean_of(list(report.played.of(cell, name).runs))
        rows.append([
            one, cell[0], f"{cell[1]:g}", name, f"{ours.accuracy:.4f} / {theirs.accuracy:.4f}",
            f"{1 - ours.dynamic_joules / theirs.dynamic_joules:+.1%}",
            f"{1 - ours.p95_seconds / theirs.p95_seconds:+.1%}",
        ])  # fmt: skip
    if rows:
        yield "### At equal accuracy"
        yield (
            "The best rule whose accuracy on validation traces is within .2 points; cells without such"
            " a rule are left out. Cuts: 1 - ours/theirs, below 0 where ours is worse."
        )
        yield table(
            ["policy", "regime", "load", "rule", "accuracy ours / its", "energy cut", "p95 cut"],
            rows,
        )


def _headline(report: Report, image: Path) -> Iterator[str]:
    head = report.headline
    stable = head.random_stable_below
    yield (
        "Everyone but random runs the slimmest width alone (70.3 %). Random placement over devices and"
        f" widths is stable below {stable:.3f} of the capacity alone (its share of requests fills the"
        f" slowest device even in full batches); at the slimmest, below"
        f" {head.random_slimmest_stable_below:.2f}. Beyond, its latency is bounded here by dropping"
        " only, and no percentage means anything. Cuts are 1 - policy/random."
    )
    yield f"![Latency and energy by load]({image.name})"
    by_load: dict[float, dict[str, Results]] = {}
    for result in head.results:
        by_load.setdefault(result.stage.load, {})[result.player] = result
    rows = []
    most = {"latency": 0.0, "energy": 0.0}
    for load, row in by_load.items():
        random, sed = (mean_of(list(row[name].runs)) for name in ("random", "SED, slimmest"))
        held, eager = _thriftiest(row, holding=True), _thriftiest(row, holding=False)
        bound_seconds, bound_joules = head.least_seconds[load], head.least_joules[load]
        thrift, working = mean_of(list(held.runs)), mean_of(list(eager.runs))
        way = (working.dynamic_joules - thrift.dynamic_joules) / max(
            working.dynamic_joules - bound_joules, 1e-9
        )
        cells = [
            f"{load:g}", "yes" if load < stable else "**no**", f"{1000 * random.mean_seconds:.1f}",
            *(f"{1 - one / random.mean_seconds:.1%}" for one in (
                sed.mean_seconds, working.mean_seconds, thrift.mean_seconds, bound_seconds,
            )),
            *(f"{1 - one / random.dynamic_joules:.1%}" for one in (
                sed.dynamic_joules, working.dynamic_joules, thrift.dynamic_joules, bound_joules,
            )),
            *(f"{1 - one / random.total_joules:.1%}" for one in (
                sed.total_joules, working.total_joules, thrift.total_joules,
            )),
            f"{way:.0%}", eager.player, held.player,
        ]  # fmt: skip
        if load < stable:
            most["latency"] = max(most["latency"], 1 - bound_seconds / random.mean_seconds)
            most["energy"] = max(most["energy"], 1 - thrift.dynamic_joules / random.dynamic_joules)
        for one in report.learned:
            ours = mean_of(list(row[one].runs))
            cells.append(
                f"{1 - ours.mean_seconds / random.mean_seconds:.1%};"
                f" {1 - ours.dynamic_joules / random.dynamic_joules:.1%};"
                f" {1 - ours.total_joules / random.total_joules:.1%}"
            )
        rows.append(cells)
    yield table(
        ["load", "random stable", "random ms",
         "latency: SED", "eager", "holding", "bound",
         "dynamic energy: SED", "eager", "holding", "bound",
         "with idle: SED", "eager", "holding",
         "of the way from eager to the bound", "eager rule", "holding rule",
         *(f"{one}: latency; dynamic; with idle" for one in report.learned)],
        rows,
    )  # fmt: skip
    yield (
        "Holding: of the rules that may wait for a fuller batch, the one of least dynamic energy that"
        " still answers 99 % within the SLO; eager: the same of the rules that never wait. What holding"
        " saves in energy it pays in latency, within the SLO: negative cuts say so. The bound of latency"
        " is the service time alone, that of energy needs full batches at no queueing."
    )
    verdict = "can be had by nobody" if most["latency"] < PAPER_LATENCY else "is within the bound"
    yield (
        f"The paper's cut of mean latency by {PAPER_LATENCY:.2%} {verdict} at these loads where random"
        f" is stable: even the bound cuts at most {most['latency']:.1%} there. Its cut of energy by"
        f" {PAPER_ENERGY:.2%} compares with {most['energy']:.1%} of dynamic energy by holding."
    )


def _thriftiest(row: dict[str, Results], *, holding: bool) -> Results:
    """Least energy of those that keep the SLO for 99 %; SED where none does."""
    keep = [
        result
        for name, result in row.items()
        if result.stage.scene.widths == WIDTHS[:1]
        and result.family != LEARNED
        and ("hold" in name) == holding
        and float(result.values("missed").mean()) <= MOST_MISSED
    ]
    return min(
        keep or [row["SED, slimmest"]], key=lambda one: float(one.values("dynamic_joules").mean())
    )


def _pools(report: Report) -> Iterator[str]:
    yield (
        "Devices drawn like the six with every figure 30 % up or down, more of them than in any training"
        " scene (2 to 12). The rules are those that were best on the six devices."
    )
    cells: dict[tuple[int, str, float], dict[str, Results]] = {}
    for result in report.pools:
        key = (len(result.stage.scene.devices), *cell_of(result))
        cells.setdefault(key, {})[result.player] = result
    rows = []
    for (devices, regime, load), row in cells.items():
        rules = {name: one for name, one in row.items() if name not in report.learned}
        best = max(rules, key=lambda name: float(rules[name].values("value").mean()))
        base = rules[best].values("value")
        shown = [str(devices), regime, f"{load:g}", best, f"{base.mean():.3f}"]
        shown += [_shown(difference(row[one].values("value"), base)) for one in report.learned]
        rows.append(shown)
    yield table(
        ["devices", "regime", "load", "best of these rules (in hindsight)", "its J",
         *(f"{one} less it" for one in report.learned)],
        rows,
    )  # fmt: skip
