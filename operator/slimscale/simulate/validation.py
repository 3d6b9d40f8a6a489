"""The simulator against closed forms, as rows of a table.

Every case has an exact answer. The simulated figure is the mean of batches, and its half width the
confidence interval that their spread gives.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import stdev

from slimscale.simulate.closed_forms import constant_dispatch_rate, shared_cpu_rate
from slimscale.simulate.measure import measure_batches
from slimscale.simulate.workload import Family, Host, TimeDistribution, Waiting, Workload
from slimscale.threads.closed_network import NetworkParameters, throughput_curve
from slimscale.threads.finite_source import FiniteSourceMM1

__all__ = ["CONFIDENCE", "ValidationRow", "validation_markdown", "validation_rows"]

CONFIDENCE = 0.9999
"""Of one row, so that a table of fifty is wrong by chance once in 200 seeds."""
_BATCHES = 20
_STUDENT_T = 4.8975  # 19 degrees of freedom, two-sided at CONFIDENCE
_ROUNDING = 1e-6
"""Relative. A deterministic run has no spread, only the last digits of long sums."""
_EDGE = 2.0
"""Tasks by which a batch's count may be off where it does not end with a task."""
_CASES_AT_MOST = 1000  # each case of each seed has random numbers of its own
_MANY_CORES = 1024
_S = 1e-3
"""Seconds of dispatch in most cases: throughput in tasks a millisecond is that of science.md."""


@dataclass(frozen=True, slots=True)
class ValidationRow:
    """Tasks a second."""

    case: str
    source: str
    """Where the expected figure comes from."""
    expected: float
    simulated: float
    half_width: float

    @property
    def agrees(self) -> bool:
        return abs(self.simulated - self.expected) <= self.half_width


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    source: str
    expected: float
    workload: Workload
    host: Host
    threads: int


def validation_rows(seed: int, *, tasks: int = 10_000) -> tuple[ValidationRow, ...]:
    """All cases, each with 20 batches of `tasks` tasks; 99.99 % intervals."""
    return tuple(
        _row(case, seed * _CASES_AT_MOST + index, tasks) for index, case in enumerate(_cases())
    )


def validation_markdown(rows: tuple[ValidationRow, ...]) -> str:
    """A table for docs/, ending with a line that says how many agree."""
    lines = [
        "| case | source | expected tasks/s | simulated | ± | off by | agrees |",
        "|---|---|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        off = 100 * (row.simulated / row.expected - 1)
        lines.append(
            f"| {row.case} | {row.source} | {row.expected:.6g} | {row.simulated:.6g} |"
            f" {row.half_width:.2g} | {off:+.2f} % | {'yes' if row.agrees else '**no**'} |"
        )
    agreed = sum(row.agrees for row in rows)
    return "\n".join([*lines, "", f"{agreed} of {len(rows)} rows agree.", ""])


def _row(case: _Case, seed: int, tasks: int) -> ValidationRow:
    rates = measure_batches(
        case.workload, case.host, case.threads, seed=seed, tasks=tasks, batches=_BATCHES
    ).tolist()
    spread = _STUDENT_T * stdev(rates) / _BATCHES**0.5
    # Under a quota a batch ends with a period, in the middle of tasks.
    edge = _EDGE / (_BATCHES * tasks) if case.host.quota_cores is not None else 0.0
    return ValidationRow(
        case=case.name,
        source=case.source,
        expected=case.expected,
        simulated=sum(rates) / len(rates),
        half_width=spread + case.expected * (_ROUNDING + edge),
    )


def _cases() -> Iterator[_Case]:
    yield from _erlang()
    yield from _dispatch_shapes()
    yield from _networks()
    yield from _crowds()
    yield from _shared_cpus()
    yield from _burning_dispatchers()
    yield from _quotas()


def _time(
    mean: float, family: Family = Family.EXPONENTIAL, variation: float = 1.0
) -> TimeDistribution:
    return TimeDistribution(family, mean, variation)


_NOTHING = _time(0.0)


def _erlang() -> Iterator[_Case]:
    """Finite-source M/M/1: threads outside the dispatcher never meet, so only their mean counts."""
    for ratio in (0.5, 2.0, 8.0, 32.0):
        for threads in (1, 4, 8, 32):
            yield _Case(
                f"r = {ratio:g}, k = {threads}, exponential",
                "Erlang B",
                FiniteSourceMM1(threads, 1 / (ratio * _S), 1 / _S).solve().throughput_per_second,
                Workload(_NOTHING, _time(ratio * _S), _time(_S)),
                Host(_MANY_CORES),
                threads,
            )
    expected = FiniteSourceMM1(8, 1 / (8 * _S), 1 / _S).solve().throughput_per_second
    for family, variation in (
        (Family.DETERMINISTIC, 0.0),
        (Family.LOGNORMAL, 4.0),
        (Family.BIMODAL, 4.0),
        (Family.PARETO, 4.0),
    ):
        yield _Case(
            f"r = 8, k = 8, {family.value} task times",
            "Erlang B (insensitive)",
            expected,
            Workload(_NOTHING, _time(8 * _S, family, variation), _time(_S)),
            Host(_MANY_CORES),
            8,
        )
    yield _Case(
        "r = 8, 32 threads, 8 tasks outstanding",
        "Erlang B",
        expected,
        Workload(_NOTHING, _time(8 * _S), _time(_S), outstanding=8),
        Host(_MANY_CORES),
        32,
    )


def _dispatch_shapes() -> Iterator[_Case]:
    constant = _time(_S, Family.DETERMINISTIC)
    for threads in (8, 16):
        yield _Case(
            f"r = 8, k = {threads}, constant dispatch",
            "M/D/1 finite source",
            constant_dispatch_rate(threads, task_seconds=8 * _S, dispatch_seconds=_S),
            Workload(_NOTHING, _time(8 * _S), constant),
            Host(_MANY_CORES),
            threads,
        )
    yield _Case(
        "r = 8, k = 8, all times constant",
        "k/(Z + S)",
        8 / (9 * _S),
        Workload(_NOTHING, _time(8 * _S, Family.DETERMINISTIC), constant),
        Host(_MANY_CORES),
        8,
    )


def _networks() -> Iterator[_Case]:
    """The closed network with a dispatcher that slows down; cores enough for everybody."""
    for linear, quadratic, handover in ((0.05, 0.0, 0.0), (0.0, 0.002, 0.0), (0.02, 0.0005, 0.5)):
        for threads in (16, 64):
            parameters = NetworkParameters(
                blocking_seconds=20 * _S,
                cpu_seconds=12 * _S,
                dispatch_seconds=_S,
                cpu_servers=_MANY_CORES,
                contention_linear=linear,
                contention_quadratic=quadratic,
                contention_handover=handover,
            )
            yield _Case(
                f"r = 32, k = {threads}, a1 = {linear:g}, b1 = {quadratic:g}, h = {handover:g}",
                "closed network",
                float(throughput_curve(parameters, threads)[-1]),
                Workload(
                    _time(12 * _S),
                    _time(20 * _S),
                    _time(_S),
                    contention_linear=linear,
                    contention_quadratic=quadratic,
                    contention_handover=handover,
                ),
                Host(_MANY_CORES),
                threads,
            )


def _crowds() -> Iterator[_Case]:
    """A few threads, much of it contention: a wrong term would not hide in the noise."""
    for linear, quadratic, handover in ((0.5, 0.0, 0.0), (0.0, 0.3, 0.0), (0.0, 0.0, 1.5)):
        parameters = NetworkParameters(
            blocking_seconds=2 * _S,
            cpu_seconds=0.0,
            dispatch_seconds=_S,
            cpu_servers=_MANY_CORES,
            contention_linear=linear,
            contention_quadratic=quadratic,
            contention_handover=handover,
        )
        yield _Case(
            f"r = 2, k = 4, a1 = {linear:g}, b1 = {quadratic:g}, h = {handover:g}",
            "closed network",
            float(throughput_curve(parameters, 4)[-1]),
            Workload(
                _NOTHING,
                _time(2 * _S),
                _time(_S),
                contention_linear=linear,
                contention_quadratic=quadratic,
                contention_handover=handover,
            ),
            Host(_MANY_CORES),
            4,
        )


def _shared_cpus() -> Iterator[_Case]:
    """Processor sharing without a dispatcher: product form whatever the shape of the CPU part."""
    for family, variation in (
        (Family.EXPONENTIAL, 1.0),
        (Family.DETERMINISTIC, 0.0),
        (Family.LOGNORMAL, 4.0),
        (Family.BIMODAL, 9.0),
        (Family.PARETO, 4.0),
    ):
        for cores, threads in ((1, 4), (2, 8), (4, 8)):
            parameters = NetworkParameters(10 * _S, 5 * _S, 0.0, cores)
            yield _Case(
                f"C = {cores}, k = {threads}, {family.value} CPU, blocking",
                "closed network (processor sharing)",
                float(throughput_curve(parameters, threads)[-1]),
                Workload(_time(5 * _S, family, variation), _time(10 * _S), _NOTHING),
                Host(cores),
                threads,
            )


def _burning_dispatchers() -> Iterator[_Case]:
    for waiting in Waiting:
        for cores, threads in ((1, 4), (2, 4), (2, 16), (8, 16)):
            yield _Case(
                f"C = {cores}, k = {threads}, r = 4, no blocking, {waiting.value}",
                "birth-death chain",
                shared_cpu_rate(
                    threads,
                    cpu_seconds=4 * _S,
                    dispatch_seconds=_S,
                    cores=cores,
                    waiting=waiting,
                ),
                Workload(_time(4 * _S), _NOTHING, _time(_S), waiting=waiting),
                Host(cores),
                threads,
            )


def _quotas() -> Iterator[_Case]:
    """In the long run a quota is spent to the last: T = quota/(D + S), with threads enough."""
    for quota, threads in ((0.25, 4), (0.5, 1), (1.5, 8), (3.0, 32)):
        yield _Case(
            f"C = 4, quota {quota:g}, k = {threads}, no blocking",
            "quota/(D + S)",
            quota / (5 * _S),
            Workload(_time(4.9 * _S), _NOTHING, _time(0.1 * _S)),
            Host(4, quota),
            threads,
        )
