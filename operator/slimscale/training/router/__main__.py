"""`python -m slimscale.training.router train | evaluate`; `make train-router` calls the first.

train: all seeds, with progress; writes the policy that ships and its card.
evaluate: the policy against every heuristic on test traces, the heuristic of each regime chosen on
validation traces; prints the table and writes it as JSON.

Example: python -m slimscale.training.router train --quick --out build/router
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from slimscale.routing.learned.weights import PolicyWeights
from slimscale.training.router.compare import CompareSettings, compare, table_of
from slimscale.training.router.train import TrainSettings, facts_of, median_result, train_seeds

POLICY_NAME = "router-ppo"
WEIGHTS_FOLDER = Path(__file__).resolve().parents[2] / "weights"
QUICK_FOLDER = Path("build/router/quick")
"""A quick run must not take the place of weights that are used."""


def run_train(settings: TrainSettings, out: Path, console: Console) -> None:
    """Train and write the policy of the seed in the middle; every seed's figures are in the card."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(), TextColumn("J {task.fields[value]:.3f}"),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        tasks: dict[tuple[int, str], TaskID] = {}

        def told(seed: int, stage: str, step: int, steps: int, value: float) -> None:
            key = (seed, stage)
            if key not in tasks:
                tasks[key] = progress.add_task(f"seed {seed} {stage}", total=steps, value=value)
            progress.update(tasks[key], completed=step, value=value)

        results = train_seeds(settings, told)
    chosen = median_result(results)
    data, card = chosen.weights.write(facts_of(results, settings))
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{POLICY_NAME}.safetensors").write_bytes(data)
    text = json.dumps(card, indent=1) + "\n"
    (out / f"{POLICY_NAME}.json").write_text(text, encoding="utf-8")
    for one in results:
        console.print(
            f"seed {one.seed}: J on validation {one.searched:.4f} after the search,"
            f" {one.learned:.4f} after PPO; {one.decisions:,} decisions in {one.seconds:.0f} s"
        )
    console.print(f"seed {chosen.seed} is the one in the middle: written to {out}")


def run_evaluate(settings: CompareSettings, weights: Path, out: Path, console: Console) -> None:
    """Compare, print, write `router-ppo-comparison.json`."""
    card = json.loads((weights / f"{POLICY_NAME}.json").read_text(encoding="utf-8"))
    policy = PolicyWeights.read((weights / f"{POLICY_NAME}.safetensors").read_bytes(), card)
    with Progress(console=console) as progress:
        task = progress.add_task("cases", total=None)

        def told(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        found = compare(policy, settings, told)
    console.print(table_of(found))
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1) + "\n"
    (out / f"{POLICY_NAME}-comparison.json").write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    console = Console()
    try:
        if asked.what == "train":
            seeds = tuple(range(1, asked.seeds + 1))
            settings = TrainSettings(seeds=seeds, search=asked.search)
            settings = settings.quick() if asked.quick else settings
            default = QUICK_FOLDER if asked.quick else WEIGHTS_FOLDER
            run_train(replace(settings, processes=asked.processes), asked.out or default, console)
        else:
            compared = CompareSettings(
                validation_traces=asked.validation_traces,
                traces=asked.traces,
                seconds=asked.seconds,
                processes=asked.processes,
            )
            compared = compared.quick() if asked.quick else compared
            run_evaluate(compared, asked.weights, asked.out or Path("build/router"), console)
    except (OSError, ValueError) as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="slimscale.training.router",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=("train", "evaluate"))
    parser.add_argument("--out", type=Path, default=None, help="folder of what is written")
    parser.add_argument("--weights", type=Path, default=WEIGHTS_FOLDER, help="folder of the policy")
    parser.add_argument("--seeds", type=int, default=5, help="training runs")
    parser.add_argument("--search", choices=("climb", "evolution"), default="climb")
    parser.add_argument("--traces", type=int, default=10, help="test traces a regime and load")
    parser.add_argument("--validation-traces", type=int, default=4, help="the same, to choose on")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a trace")
    parser.add_argument("--processes", type=int, default=2, help="at once")
    parser.add_argument(
        "--quick", action="store_true", help="a run of seconds, to see that it runs"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
