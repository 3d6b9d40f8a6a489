"""The candidate policy of a router: its file, its stage, and what is told of both."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from slimscale.api.serving_config import PolicyName, RouterConfig
from slimscale.routing.rollout import Stage
from slimscale.routing.shielded import ShieldedPolicy
from slimscale.serving.router.live import Live, LoadedPolicy, widths_of
from slimscale.serving.router.policy_file import PolicyFile
from slimscale.serving.router.state import PolicyState
from slimscale.serving.router.trial import try_out

__all__ = ["CandidateKeeper"]

_log = logging.getLogger(__name__)
_STOOD = "Stood"


class CandidateKeeper:
    """`poll` once a second: whether there is another policy. `tick` then: whether its stage changes.

    `shipped`: the policy of this version, or None and why there is none.
    """

    def __init__(
        self, file: PolicyFile, folder: Path, *, shipped: LoadedPolicy | None, problem: str = ""
    ) -> None:
        self.file = file
        self._folder = folder
        self._shipped = shipped
        self._problem = problem
        self._fitting: tuple[LoadedPolicy, RouterConfig, str] | None = None

    def poll(self, config: RouterConfig) -> LoadedPolicy | None:
        """What the candidate is to be made of; None: the heuristic answers for it."""
        if config.policy is not PolicyName.PPO:
            self.file.forget()
            return None
        if config.policy_from_config_map:
            self.file.poll(self._folder, lambda loaded: try_out(loaded, config, widths_of(config)))
            found = self.file.loaded
        else:
            self.file.forget()
            found = self._shipped
        return found if found is not None and self._fits(found, config) else None

    def _fits(self, loaded: LoadedPolicy, config: RouterConfig) -> bool:
        """Whether it can route for this configuration: one that was good may not be so for another."""
        if self._fitting is None or self._fitting[:2] != (loaded, config):
            try:
                try_out(loaded, config, widths_of(config))
                problem = ""
            except ValueError as error:
                problem = f"{error}; the heuristic answers"
                _log.error("policy refused: %s", problem)
            self._fitting = (loaded, config, problem)
        return not self._fitting[2]

    @staticmethod
    def tick(live: Live, *, now: float) -> None:
        rollout = live.rollout
        if rollout is not None and rollout.tick(now):
            _log.warning(
                "candidate policy: %s (%s) %s", rollout.stage, rollout.reason, rollout.words
            )

    def error(self, config: RouterConfig) -> str | None:
        """Why the policy that was asked for is not there."""
        if config.policy is not PolicyName.PPO:
            return None
        if self._fitting is not None and self._fitting[2]:
            return self._fitting[2]
        if config.policy_from_config_map:
            return self.file.error
        if self._shipped is None:
            return f"{self._problem or 'this version ships no policy'}; the heuristic answers"
        return None

    def state(self, live: Live, *, now: float) -> PolicyState:
        """For the operator."""
        rollout, candidate = live.rollout, live.candidate
        stage = rollout.stage if rollout is not None else None
        acting = candidate if stage is Stage.ACTIVE and candidate is not None else live.policy
        return PolicyState(
            asked=live.config.policy,
            acting=acting.name,
            stage="" if stage is None else stage.value,
            reason="" if rollout is None else rollout.reason.value,
            words="" if rollout is None else rollout.words,
            since_seconds=None if rollout is None else round(max(0.0, now - rollout.since), 3),
            falls=0 if rollout is None else rollout.falls,
            version="" if live.loaded is None else live.loaded.version,
            error=self.error(live.config),
            overruled_share=_overruled(candidate),
        )

    def gauges(self, live: Live) -> Iterable[tuple[str, dict[str, float]]]:
        """For the metrics; nothing where no policy is tried."""
        if live.config.policy is PolicyName.PPO:
            yield "policy_ok", {"": self.error(live.config) is None}
            yield "policy_loads", {"": self.file.loads}
            yield "policy_failures", {"": self.file.failures}
        rollout = live.rollout
        if rollout is not None:
            yield "policy_stage", {stage.value: rollout.stage is stage for stage in Stage}
            yield "policy_falls", {"": rollout.falls}
        if live.log is not None:
            yield "decision_log_decisions", {"": live.log.decisions}
            yield "decision_log_bytes", {"": live.log.stored_bytes}

    @staticmethod
    def counts(live: Live) -> Iterable[tuple[str, Mapping[tuple[str, ...], float]]]:
        candidate, rollout = live.candidate, live.rollout
        if isinstance(candidate, ShieldedPolicy):
            verdicts: dict[tuple[str, ...], float] = {(_STOOD,): candidate.stood}
            verdicts |= {(str(name),): count for name, count in candidate.overruled.items()}
            yield "shield", verdicts
        if rollout is not None:
            arms = {"candidate": rollout.candidate, "incumbent": rollout.incumbent}
            yield (
                "candidate_requests",
                {
                    (name, result): count
                    for name, arm in arms.items()
                    for result, count in (("met", arm.ended - arm.missed), ("missed", arm.missed))
                },
            )


def _overruled(candidate: object) -> float | None:
    if not isinstance(candidate, ShieldedPolicy):
        return None
    overruled = candidate.overruled.total()
    judged = candidate.stood + overruled
    return round(overruled / judged, 4) if judged else None
