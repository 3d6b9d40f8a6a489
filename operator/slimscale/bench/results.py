"""The runs of a benchmark, addressed by scenario, policy and seed, and what is compared of them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from slimscale.bench.curves import PhaseCurves
from slimscale.bench.runner import RunRecord

__all__ = ["Results"]


@dataclass(slots=True)
class Results:
    """All runs and, for each scenario, the true curves of its phases."""

    curves: Mapping[str, PhaseCurves]
    _runs: dict[tuple[str, str], dict[int, RunRecord]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    @staticmethod
    def of(records: Iterable[RunRecord], curves: Mapping[str, PhaseCurves]) -> "Results":
        results = Results(curves)
        for record in records:
            results._runs[(record.scenario, record.policy)][record.seed] = record
        return results

    @property
    def scenarios(self) -> tuple[str, ...]:
        return tuple(sorted({scenario for scenario, _ in self._runs}))

    @property
    def policies(self) -> tuple[str, ...]:
        """In the order of their first appearance."""
        return tuple(dict.fromkeys(policy for _, policy in self._runs))

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({seed for runs in self._runs.values() for seed in runs}))

    def runs(self, scenario: str, policy: str) -> dict[int, RunRecord]:
        return dict(self._runs.get((scenario, policy), {}))

    def of_policy(self, policy: str) -> Iterator[RunRecord]:
        for (_, name), runs in self._runs.items():
            if name == policy:
                yield from runs.values()

    def pairs(
        self, policy: str, base: str, *, scenarios: Iterable[str] | None = None
    ) -> dict[str, list[tuple[RunRecord, RunRecord]]]:
        """(policy's run, base's run) of the same scenario and seed, for each scenario with any."""
        found: dict[str, list[tuple[RunRecord, RunRecord]]] = {}
        for scenario in self.scenarios if scenarios is None else scenarios:
            ours, theirs = self.runs(scenario, policy), self.runs(scenario, base)
            both = [(ours[seed], theirs[seed]) for seed in sorted(ours.keys() & theirs.keys())]
            if both:
                found[scenario] = both
        return found
