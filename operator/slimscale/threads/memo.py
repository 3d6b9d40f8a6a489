"""What AutoThread has learned, as the small JSON that outlives the operator.

Unknown or damaged content is never repaired by guessing: it is dropped, and the decision says so.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from slimscale.domain.decision import PodTarget

__all__ = [
    "MEMO_VERSION",
    "Belief",
    "KnownLoad",
    "LoadPoint",
    "Memo",
    "Pending",
    "Refusal",
    "Regime",
    "Trend",
    "load_memo",
]

MEMO_VERSION = 1
MAX_POINTS = 8
MAX_PROPOSALS = 3
MAX_LOADS = 6
MEAN_OF_WINDOWS = 9
IMPOSSIBLE = 1.2
"""Throughput over what so many threads could do at most, from which one of two points is wrong."""
SAME_LOAD = 0.4
"""Log ratio of CPU a task up to which two points speak of one load."""


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Throughput of a pod measured under saturated demand. cpu_cores: the quota or the cores."""

    threads: int
    cpu_cores: float
    tasks_per_second: float
    dispatch_seconds: float | None = None
    """Holding time of the dispatcher; it grows with the crowd there."""
    blocked_seconds: float | None = None
    """Of a task: wall less CPU and run queue, whatever it was that it waited for."""
    crowd: float | None = None
    """Mean number of threads outside their tasks: at the dispatcher (Little's law)."""
    cpu_seconds: float | None = None
    """Of a task: points of a task that costs another CPU time speak of another load."""
    windows: int = 1
    """How many windows the rate is the mean of; they overlap."""

    def of_one_load(self, other: "LoadPoint") -> bool:
        """CPU a task differs between thread counts too, but not by more than half; and a thread
        never does more in larger company (T(k)/k falls with k), so what says that it does was
        measured while something else took the CPU.
        """
        few, many = sorted((self, other), key=lambda p: p.threads)
        most = few.tasks_per_second * many.threads / few.threads
        if self.cpu_cores == other.cpu_cores and many.tasks_per_second > IMPOSSIBLE * most:
            return False
        if self.cpu_seconds is None or other.cpu_seconds is None:
            return True
        return abs(math.log(self.cpu_seconds / other.cpu_seconds)) <= SAME_LOAD


@dataclass(frozen=True, slots=True)
class Belief:
    """State of one parameter's filter: the logarithm's mean and variance."""

    mean: float
    variance: float
    rejected: int = 0
    """Windows in a row that did not fit."""


@dataclass(frozen=True, slots=True)
class Regime:
    """What was learned of the present load. Forgotten when the load changes."""

    number: int = 0
    started_at_seconds: float = 0.0
    serial_seconds: float | None = None
    """A bottleneck that only showed when more threads brought nothing: seconds a task."""
    serial_threads: int | None = None
    """Fewest threads that are known to reach that bottleneck's rate."""
    serial_refuted: bool = False
    """Fewer threads did less in proportion: there is no such bottleneck."""
    contention_linear: float | None = None
    """Growth of the dispatch time with the crowd, from the last window that had a crowd."""
    former_dispatch_seconds: float | None = None
    """S of the load before, with nobody else there: the same program has the same dispatcher."""
    former_contention: float | None = None
    """Its `contention_linear`."""
    reference: Mapping[str, float] = field(default_factory=dict)
    """Logarithms of a task's CPU and wait when this load began: what was learned holds near them."""
    drifting_since_seconds: float | None = None
    """End of the first window that had left the reference: one that lies after it decides."""
    waits_are_real: bool = False
    """Unlike thread counts waited as long a task: for an engine, not for each other."""
    floor_threads: int | None = None
    """Fewer threads cost throughput when they were tried."""
    ceiling_threads: int | None = None
    """More threads cost throughput when they were tried."""
    floor_cpu_millicores: int | None = None
    failed_raises: int = 0
    failed_cuts: int = 0
    lowered: bool = False
    """Something was saved in this load: when it has to be raised again, that is its floor."""
    probes: int = 0
    """Steps of our own beyond what the model asked for (`probe.py`)."""
    settled: bool = False
    """The model had nothing more to ask for: what the load stood on is worth remembering."""
    searched: bool = False
    """Nothing was left to try: the count stays until the load changes."""
    tried_above: int | None = None
    """A probe above this count was not worth it."""
    tried_below: int | None = None
    trust_radius: float | None = None
    """Factor of the next probe's step: grows with success, shrinks with failure."""
    beliefs: Mapping[str, Belief] = field(default_factory=dict)
    """What the windows so far say of a task, with `belief_threads` on `belief_cores` CPUs."""
    belief_threads: int | None = None
    belief_cores: float | None = None
    points: tuple[LoadPoint, ...] = ()

    @property
    def least_crowded(self) -> LoadPoint | None:
        """The point with the smallest crowd at the dispatcher: its holding time is nearest to S."""
        known = [p for p in self.points if p.crowd is not None and p.dispatch_seconds]
        return min(known, key=lambda p: p.crowd or 0.0, default=None)

    def with_point(self, point: LoadPoint) -> "Regime":
        """One figure for each (threads, CPU), the mean of its last windows; the oldest of too many
        goes. What a task does is taken from the newest window.
        """
        same = [
            p for p in self.points if (p.threads, p.cpu_cores) == (point.threads, point.cpu_cores)
        ]
        if same:
            windows = min(same[0].windows + 1, MEAN_OF_WINDOWS)
            old, new = math.log(same[0].tasks_per_second), math.log(point.tasks_per_second)
            rate = math.exp(old + (new - old) / windows)
            point = replace(point, tasks_per_second=rate, windows=windows)
        others = tuple(
            p
            for p in self.points
            if (p.threads, p.cpu_cores) != (point.threads, point.cpu_cores) and p.of_one_load(point)
        )
        return replace(self, points=(*others, point)[-MAX_POINTS:])


@dataclass(frozen=True, slots=True)
class KnownLoad:
    """What a load settled on, beside what its tasks cost. Seconds a task; CPUs of a container."""

    threads: int
    cpu_seconds: float
    blocked_seconds: float
    cores: float
    tasks_per_second: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """A raise that cost much: the program may have a cliff between the two counts, whatever the load."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A change that still has to show that it was worth it."""

    before: PodTarget
    after: PodTarget
    since_seconds: float
    tasks_per_second: float | None
    """Measured before; None: demand did not saturate, so there is nothing to compare."""
    predicted_tasks_per_second: float
    intervals: float
    """How many scrape intervals the figure before rests on."""
    probe: str = ""
    """The tier that asked for a probe; empty for a change that the model asked for."""


@dataclass(frozen=True, slots=True)
class Trend:
    """State of the change detector for one signal, in log units."""

    count: int = 0
    mean: float = 0.0
    variance: float = 0.0
    rise: float = 0.0
    fall: float = 0.0


@dataclass(frozen=True, slots=True)
class Memo:
    version: int = MEMO_VERSION
    target: PodTarget | None = None
    previous: PodTarget | None = None
    changed_at_seconds: float | None = None
    target_tier: str = ""
    """What chose the target: Predict, CpuAware, Search, Revert or FloorOfQuota."""
    contract_seen: bool = False
    regime: Regime = Regime()
    pending: Pending | None = None
    trends: Mapping[str, Trend] = field(default_factory=dict)
    trend_threads: int | None = None
    trend_cores: float | None = None
    trend_seen_until_seconds: float = 0.0
    carried_cpu_log: float | None = None
    """Log CPU a task under the thread count before: it must not jump because threads changed."""
    deviating_since_seconds: float | None = None
    rate_variance: float | None = None
    """Of the log throughput of one interval: outlives changes of threads."""
    repredict: bool = False
    """The load changed and the next window decides at once, dwell or not."""
    proposals: tuple[PodTarget, ...] = ()
    """Savings proposed lately: only what all of them agree on is saved."""
    invalid_predictions: int = 0
    loads: tuple[KnownLoad, ...] = ()
    """Loads that came before and what they settled on (`recall.py`)."""

    refusal: Refusal | None = None
    """The last raise that cost much, in this load or an earlier one."""

    def to_json(self) -> dict[str, object]:
        document: dict[str, object] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return document


def load_memo(document: Mapping[str, object]) -> tuple[Memo, str]:
    """The memo and, when it could not be read, why it starts afresh (else an empty string)."""
    if not document:
        return Memo(), ""
    if document.get("version") != MEMO_VERSION:
        return Memo(), f"learned state has version {str(document.get('version'))[:16]!r}, not 1"
    try:
        return _memo(document), ""
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        return Memo(), f"learned state could not be read ({type(error).__name__})"


def _memo(document: Mapping[str, object]) -> Memo:
    regime = _section(document, "regime") or {}
    pending = _section(document, "pending")
    trends = _section(document, "trends") or {}
    return Memo(
        target=_target(document.get("target")),
        previous=_target(document.get("previous")),
        changed_at_seconds=_number(document.get("changed_at_seconds")),
        target_tier=str(document.get("target_tier") or "")[:32],
        contract_seen=document.get("contract_seen") is True,
        regime=Regime(
            number=_whole(regime.get("number")) or 0,
            started_at_seconds=_number(regime.get("started_at_seconds")) or 0.0,
            serial_seconds=_positive(regime.get("serial_seconds")),
            serial_threads=_whole(regime.get("serial_threads")),
            serial_refuted=regime.get("serial_refuted") is True,
            contention_linear=_number(regime.get("contention_linear")),
            former_dispatch_seconds=_positive(regime.get("former_dispatch_seconds")),
            former_contention=_number(regime.get("former_contention")),
            reference=_logs(regime.get("reference")),
            drifting_since_seconds=_number(regime.get("drifting_since_seconds")),
            waits_are_real=regime.get("waits_are_real") is True,
            floor_threads=_whole(regime.get("floor_threads")),
            ceiling_threads=_whole(regime.get("ceiling_threads")),
            floor_cpu_millicores=_whole(regime.get("floor_cpu_millicores")),
            failed_raises=_whole(regime.get("failed_raises")) or 0,
            failed_cuts=_whole(regime.get("failed_cuts")) or 0,
            lowered=regime.get("lowered") is True,
            probes=_whole(regime.get("probes")) or 0,
            settled=regime.get("settled") is True,
            searched=regime.get("searched") is True,
            tried_above=_whole(regime.get("tried_above")),
            tried_below=_whole(regime.get("tried_below")),
            trust_radius=_positive(regime.get("trust_radius")),
            beliefs=_beliefs(regime),
            belief_threads=_whole(regime.get("belief_threads")),
            belief_cores=_positive(regime.get("belief_cores")),
            points=tuple(_point(p) for p in _items(regime.get("points"))[-MAX_POINTS:]),
        ),
        pending=_pending(pending) if pending else None,
        trends={str(name)[:32]: _trend(value) for name, value in list(trends.items())[:8]},
        trend_threads=_whole(document.get("trend_threads")),
        trend_cores=_number(document.get("trend_cores")),
        trend_seen_until_seconds=_number(document.get("trend_seen_until_seconds")) or 0.0,
        carried_cpu_log=_number(document.get("carried_cpu_log")),
        deviating_since_seconds=_number(document.get("deviating_since_seconds")),
        rate_variance=_number(document.get("rate_variance")),
        repredict=document.get("repredict") is True,
        proposals=tuple(
            target
            for item in _items(document.get("proposals"))[-MAX_PROPOSALS:]
            if (target := _target(item)) is not None
        ),
        invalid_predictions=_whole(document.get("invalid_predictions")) or 0,
        refusal=_refusal(document),
        loads=tuple(_known_load(item) for item in _items(document.get("loads"))[-MAX_LOADS:]),
    )


def _section(document: Mapping[str, object], name: str) -> Mapping[str, object] | None:
    value = document.get(name)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(name)
    return value


def _items(value: object) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise TypeError("not a list")
    return list(value)


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError("not a finite number")
    return float(value)


def _positive(value: object) -> float | None:
    number = _number(value)
    if number is not None and number <= 0:
        raise ValueError("not above 0")
    return number


def _whole(value: object) -> int | None:
    number = _number(value)
    if number is None:
        return None
    if number != int(number) or number < 0:
        raise ValueError("not a whole number")
    return int(number)


def _target(value: object) -> PodTarget | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError("target")
    threads = _whole(value.get("threads"))
    if not threads:
        raise ValueError("threads")
    return PodTarget(
        threads,
        _whole(value.get("cpu_request_millicores")),
        _whole(value.get("cpu_limit_millicores")),
    )


def _point(value: object) -> LoadPoint:
    if not isinstance(value, Mapping):
        raise TypeError("point")
    threads = _whole(value.get("threads"))
    cores, rate = _positive(value.get("cpu_cores")), _positive(value.get("tasks_per_second"))
    if not threads or cores is None or rate is None:
        raise ValueError("point")
    return LoadPoint(
        threads,
        cores,
        rate,
        dispatch_seconds=_number(value.get("dispatch_seconds")),
        blocked_seconds=_number(value.get("blocked_seconds")),
        crowd=_number(value.get("crowd")),
        cpu_seconds=_positive(value.get("cpu_seconds")),
        windows=max(1, _whole(value.get("windows")) or 1),
    )


def _known_load(value: object) -> KnownLoad:
    if not isinstance(value, Mapping):
        raise TypeError("load")
    threads = _whole(value.get("threads"))
    cpu, cores = _positive(value.get("cpu_seconds")), _positive(value.get("cores"))
    rate = _positive(value.get("tasks_per_second"))
    if not threads or cpu is None or cores is None or rate is None:
        raise ValueError("load")
    return KnownLoad(threads, cpu, _number(value.get("blocked_seconds")) or 0.0, cores, rate)


def _refusal(document: Mapping[str, object]) -> Refusal | None:
    value = _section(document, "refusal")
    if value is None:
        return None
    before, after = _whole(value.get("before")), _whole(value.get("after"))
    if not before or not after or after <= before:
        raise ValueError("refusal")
    return Refusal(before, after)


def _pending(value: Mapping[str, object]) -> Pending:
    before, after = _target(value.get("before")), _target(value.get("after"))
    since, predicted = (
        _number(value.get("since_seconds")),
        _positive(value.get("predicted_tasks_per_second")),
    )
    if before is None or after is None or since is None or predicted is None:
        raise ValueError("pending")
    return Pending(
        before=before,
        after=after,
        since_seconds=since,
        tasks_per_second=_positive(value.get("tasks_per_second")),
        predicted_tasks_per_second=predicted,
        intervals=_number(value.get("intervals")) or 1.0,
        probe=str(value.get("probe") or "")[:32],
    )


def _logs(value: object) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError("reference")
    return {str(name)[:32]: _number(v) or 0.0 for name, v in list(value.items())[:8]}


def _beliefs(regime: Mapping[str, object]) -> dict[str, Belief]:
    found = {}
    for name, value in list((_section(regime, "beliefs") or {}).items())[:8]:
        if not isinstance(value, Mapping):
            raise TypeError("belief")
        mean, variance = _number(value.get("mean")), _positive(value.get("variance"))
        if mean is None or variance is None or not -50 < mean < 50:
            raise ValueError("belief")
        found[str(name)[:32]] = Belief(mean, variance, _whole(value.get("rejected")) or 0)
    return found


def _trend(value: object) -> Trend:
    if not isinstance(value, Mapping):
        raise TypeError("trend")
    numbers = {
        name: _number(value.get(name)) or 0.0 for name in ("mean", "variance", "rise", "fall")
    }
    return Trend(count=_whole(value.get("count")) or 0, **numbers)
