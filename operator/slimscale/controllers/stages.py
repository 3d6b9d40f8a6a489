"""The stages of a reconcile, as the controller sees them. `context.py` picks the real ones."""

from collections.abc import Callable
from typing import Protocol

from slimscale.api.simworkload import SimWorkloadSpec
from slimscale.domain.decision import Decision
from slimscale.domain.observation import Observation
from slimscale.domain.plan import ApplyResult, Plan
from slimscale.kubeapi.ports import Json

__all__ = [
    "Applies",
    "Decides",
    "Folds",
    "MemoKeeper",
    "Observes",
    "Plans",
    "Reporter",
    "StatusKeeper",
]

Key = tuple[str, str]


class Observes(Protocol):
    async def observe(self, simworkload: Json, spec: SimWorkloadSpec) -> Observation: ...
    async def glance(self, before: Observation, spec: SimWorkloadSpec) -> Observation | None:
        """The same pods with newer samples; reads nothing from the API server."""
        ...

    async def forget(self, key: Key) -> None: ...


class Decides(Protocol):
    def __call__(
        self,
        *,
        observation: Observation,
        spec: SimWorkloadSpec,
        memo: Json,
        now_seconds: float,
    ) -> Decision: ...


class Plans(Protocol):
    def __call__(
        self,
        *,
        observation: Observation,
        decision: Decision,
        spec: SimWorkloadSpec,
        memo: Json,
        now_seconds: float,
    ) -> Plan: ...


class Applies(Protocol):
    async def apply(
        self, plan: Plan, *, namespace: str, lease_held: Callable[[], bool]
    ) -> ApplyResult: ...


class Folds(Protocol):
    def __call__(self, plan: Plan, result: ApplyResult, *, now_seconds: float) -> Plan: ...


class MemoKeeper(Protocol):
    """The learned state between two reconciles and between two processes."""

    async def load(self, simworkload: Json) -> tuple[Json, Json]:
        """(memo of `decide`, memo of `plan`)."""
        ...

    async def save(self, simworkload: Json, *, decided: Json, planned: Json | None) -> None:
        """planned None: unchanged. Writes only what differs."""
        ...

    def keep(self, simworkload: Json, *, decided: Json) -> None:
        """Remember until the next `save`; nothing is written."""
        ...

    def kept(self, simworkload: Json) -> Json | None:
        """What `decide` left last, from memory; None: there is none."""
        ...

    async def flush(self) -> None:
        """Before an orderly end."""
        ...

    def forget(self, key: Key) -> None: ...


class StatusKeeper(Protocol):
    async def update(
        self,
        simworkload: Json,
        *,
        observation: Observation,
        decision: Decision,
        plan: Plan,
        result: ApplyResult,
        spec: SimWorkloadSpec,
    ) -> Json:
        """Write when it differs and is due; return the status as it now stands."""
        ...

    async def refuse(self, simworkload: Json, problems: list[str]) -> None:
        """SpecValid=False; nothing else of the status changes."""
        ...

    def forget(self, key: Key) -> None: ...


class Reporter(Protocol):
    """Events, metrics and the decision log: nothing here may fail a reconcile."""

    async def report(
        self,
        simworkload: Json,
        *,
        observation: Observation,
        decision: Decision,
        plan: Plan,
        result: ApplyResult,
        status: Json,
        spec: SimWorkloadSpec,
        memo: Json,
    ) -> None: ...

    def stage_seconds(self, stage: str, seconds: float) -> None: ...
    def forget(self, key: Key) -> None: ...
