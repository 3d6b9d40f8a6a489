"""Related policies for the tables of `slimscale bench routing`: by name, so that other processes find them."""

from collections.abc import Iterator
from dataclasses import dataclass

from slimscale.bench.bounds.plane import policies
from slimscale.bench.routing.stage import Stage
from slimscale.simulate.routing.state import Plane

__all__ = ["Related", "related_players"]

_ALREADY_THERE = {"SED, widest within slack", "SED, slimmest", "mixture"}
"""Rules of that benchmark's own."""


@dataclass(frozen=True, slots=True)
class Related:
    """A `Player` of that benchmark."""

    name: str
    family: str

    @property
    def key(self) -> str:
        return repr(self)

    def play(self, plane: Plane, stage: Stage) -> None:  # noqa: ARG002 - knows no plan
        policies()[self.name](plane)


def related_players() -> Iterator[Related]:
    """All that are not there already; each is a family of its own."""
    for name in policies():
        if name not in _ALREADY_THERE:
            yield Related(name, name)
