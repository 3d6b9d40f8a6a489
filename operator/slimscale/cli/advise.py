"""`slimscale advise -- CMD`: the job without a cluster.

The program runs here under the contract. What it serves goes through the very `decide` that the
operator calls; with `--probe` the chosen count and its neighbours are then run and shown beside
the prediction. A program that ends by itself is run once for each thread count instead.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.cli.local_program import LocalProgram, run_to_end
from slimscale.cli.plots import curve_png, curve_text
from slimscale.domain.contract import ContractSample
from slimscale.domain.decision import Decision
from slimscale.domain.observation import ContainerResources
from slimscale.exceptions import SlimError
from slimscale.inpod.cgroup import cpu_count_available
from slimscale.simulate.lone_pod import observe_lone_pod
from slimscale.threads.decide import decide

__all__ = ["advise", "advised", "decide_locally", "ladder"]

START_SECONDS = 60.0
_OF_THE_MODEL = ("Estimate", "Predict", "Choose")
CLEARLY_MORE = 1.1
"""Two runs of one setting differ by less than this, as a rule."""


def advise(
    *,
    command: list[str],
    max_threads: int,
    seconds: float,
    cpus: float | None,
    probe: bool,
    png: str,
) -> None:
    """Print the best thread count of a local program and its curve.

    Raises:
        SlimError: it cannot be started, fails, or serves metrics that cannot be used.
    """
    if png and not Path(png).absolute().parent.is_dir():
        raise SlimError(f"--png {png}: there is no such folder; make it first")
    console = Console()
    cores = cpus or cpu_count_available()
    with LocalProgram(command) as program, _progress(console) as progress:
        task = progress.add_task("starting", total=None)
        if program.wait_for_metrics(seconds=START_SECONDS):
            program.wait_until_busy(seconds=START_SECONDS)
            progress.update(task, description=f"measuring for {seconds:g} s", total=None)
            samples = list(program.samples(seconds=seconds))
            decision = decide_locally(samples, cores=cores, max_threads=max_threads)
            measured = [_rate_of(samples)]
            if probe and decision.target is not None:
                pending = _neighbours(decision.target.threads, max_threads)
                while pending:
                    threads = pending.pop(0)
                    progress.update(task, description=f"checking {threads} threads")
                    measured += _probe(program, threads, seconds)
                    if not pending:
                        pending = _further(measured, max_threads)
        else:
            progress.stop()
            _advise_batch(console, command, max_threads=max_threads, cores=cores, png=png)
            return
    _report(console, decision, measured, cores=cores, png=png)


def decide_locally(
    samples: Sequence[ContractSample], *, cores: float, max_threads: int
) -> Decision:
    """The operator's own decision, for one pretended pod with these samples and this much CPU."""
    now = samples[-1].sampled_at_seconds
    span = max(2, round(now - samples[0].sampled_at_seconds))
    observation = observe_lone_pod(
        # outside a container the CPU of the cgroup is everybody's
        [replace(sample, cpu_usage_seconds_total=None) for sample in samples],
        name="local",
        pod_uid=samples[0].pod_uid,
        resources=ContainerResources(cpu_limit_millicores=round(cores * 1000)),
        created_at_seconds=samples[0].process_start_seconds,
        now_seconds=now,
        guaranteed_beside=True,
    )
    spec = SimWorkloadSpec.model_validate(
        {
            "targetRef": {"name": "local"},
            "threads": {"max": max_threads},
            "cpu": {"limitPolicy": "Keep"},
            "metrics": {"intervalSeconds": 1},
            "tuning": {"windowSeconds": span, "minDwellSeconds": 0, "hysteresisPercent": 0},
        }
    )
    return decide(
        observation=observation,
        spec=spec,
        memo={},
        now_seconds=now,
    )


def ladder(max_threads: int, cores: float) -> list[int]:
    """Counts that are worth a whole run: powers of two up to four times the cores, and the cores."""
    top = min(max_threads, max(4, round(4 * cores)))
    counts = {1, min(max_threads, max(1, int(cores))), top}
    power = 2
    while power <= top:
        counts.add(power)
        power *= 2
    return sorted(counts)


def _neighbours(threads: int, max_threads: int) -> list[int]:
    step = max(1, threads // 2)
    around = {1, threads - step, threads, threads + step}
    return sorted(count for count in around if 1 <= count <= max_threads)


def _further(measured: Sequence[tuple[int, float]], max_threads: int) -> list[int]:
    """The double of the largest count, while that was clearly the best of those that were run."""
    rates = dict(measured)
    largest = max(rates)
    others = [rate for threads, rate in rates.items() if threads != largest]
    if largest >= max_threads or rates[largest] < CLEARLY_MORE * max(others, default=0.0):
        return []
    return [min(2 * largest, max_threads)]


def _probe(program: LocalProgram, threads: int, seconds: float) -> list[tuple[int, float]]:
    program.set_threads(threads)
    if not program.wait_until_applied(threads):
        raise SlimError(f"the program did not acknowledge {threads} threads; see docs/contract.md")
    return [_rate_of(list(program.samples(seconds=seconds)))]


def _rate_of(samples: Sequence[ContractSample]) -> tuple[int, float]:
    """(threads, tasks a second) between the first and the last sample."""
    first, last = samples[0], samples[-1]
    seconds = last.sampled_at_seconds - first.sampled_at_seconds
    tasks = (last.tasks_total or 0.0) - (first.tasks_total or 0.0)
    return last.threads_applied or 0, tasks / seconds if seconds > 0 else 0.0


def _report(
    console: Console,
    decision: Decision,
    measured: list[tuple[int, float]],
    *,
    cores: float,
    png: str,
) -> None:
    if decision.target is None:
        raise SlimError(f"no advice: {decision.message or decision.metrics_message}")
    predicted = decision.target.threads
    best = advised(predicted, measured)
    for step in decision.steps:
        if step.stage not in _OF_THE_MODEL:
            continue  # pods, modes and samples: words of a cluster
        console.print(
            f"[dim]{step.stage}[/] {step.outcome}: {escape(step.reason)}", highlight=False
        )
    points = _thinned(
        decision.model.curve, keep={predicted, best, *(threads for threads, _ in measured)}
    )
    console.print(curve_text(points, chosen=best, measured=measured))
    console.print(
        f"[bold]best: {best} thread{'s' if best != 1 else ''}[/] on {cores:g} CPUs,"
        f" confidence {decision.confidence}"
    )
    if best != predicted:
        console.print(
            f"the model said {predicted}; measured, {best} did clearly more, and what is measured"
            " counts"
        )
    started_with = measured[0][0]
    # The count it started with may have been run again, like the others: that is the fairer figure.
    rate_before = dict(measured)[started_with]
    reached = dict(measured[1:]).get(best)
    if reached is not None and rate_before > 0:
        console.print(
            f"measured {reached:,.3g} tasks/s, {reached / rate_before:.2f} times the"
            f" {rate_before:,.3g} tasks/s at {started_with} when it started"
        )
    if png and points:
        curve_png(png, points, chosen=best, title="advise", measured=measured)
        console.print(f"curve: {png}")


def advised(predicted: int, measured: Sequence[tuple[int, float]]) -> int:
    """The model's count, unless one that was run did clearly more than the model's when run.

    `measured` begins with the count that the program started with.
    """
    rates = dict(measured)
    if predicted not in rates:
        return predicted
    best = max(rates, key=lambda threads: rates[threads])
    return best if rates[best] > rates[predicted] * CLEARLY_MORE else predicted


def _thinned(points: Sequence[tuple[int, float]], *, keep: set[int]) -> list[tuple[int, float]]:
    """At most about thirty points for the terminal: all small counts, then ever wider steps."""
    shown, last = [], 0
    for threads, rate in sorted(points):
        if threads in keep or threads <= 8 or threads >= last * 1.2:
            shown.append((threads, rate))
            last = threads
    return shown


def _advise_batch(
    console: Console, command: list[str], *, max_threads: int, cores: float, png: str
) -> None:
    """Run the whole program once for each count of a ladder; the shortest run wins."""
    console.print("the program ended by itself: running it once for each thread count")
    runs: list[tuple[int, float]] = []
    pending = ladder(max_threads, cores)
    with _progress(console) as progress:
        task = progress.add_task("running", total=None)
        while pending:
            threads = pending.pop(0)
            progress.update(task, description=f"{threads} threads")
            runs.append((threads, 1.0 / run_to_end(command, threads)))
            if not pending:
                pending = _further(runs, max_threads)
    best, rate = max(runs, key=lambda run: run[1])
    console.print(curve_text(runs, chosen=best))
    console.print(f"[bold]best: {best} threads[/], {1 / rate:.3g} s a run")
    if png:
        curve_png(png, runs, chosen=best, title=f"runs a second of {Path(command[0]).name}")
        console.print(f"curve: {png}")


def _progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)
