"""Builds the router's state and the gauges of its metrics from what its parts know."""

from collections.abc import Iterable, Mapping

from slimscale.routing.ejection import Health
from slimscale.routing.mixture import Mixture
from slimscale.serving.router.buffer import RequestBuffer
from slimscale.serving.router.candidate import CandidateKeeper
from slimscale.serving.router.forward import Forwarder
from slimscale.serving.router.pods import Pod, Pods
from slimscale.serving.router.state import (
    DecisionState,
    DemandState,
    PodState,
    PoolState,
    RouterState,
)
from slimscale.serving.router.windows import Demand

__all__ = ["Summary"]


class Summary:
    """`pods_known()` tells whether the pods were ever listed, `config_error()` a bad file's fault."""

    def __init__(
        self,
        name: str,
        *,
        forwarder: Forwarder,
        pods: Pods,
        buffer: RequestBuffer,
        demand: Demand,
        candidates: CandidateKeeper,
    ) -> None:
        self.name = name
        self.config_error: str | None = None
        self.config_loads = 0
        self.config_failures = 0
        self.pods_known = False
        self.watch_failures = 0
        self._forwarder = forwarder
        self._pods = pods
        self._buffer = buffer
        self._demand = demand
        self._candidates = candidates

    def state(
        self, *, now: float, stable: float, panic: float, percentile: float = 95.0
    ) -> RouterState:
        config = self._forwarder.live.config
        pods = [self._pod(pod, now) for pod in self._pods]
        mix = self._demand.totals(stable, now=now).answers_by_model
        answers = sum(mix.values())
        return RouterState(
            router=self.name,
            service=config.service,
            policy=config.policy,
            mode=config.mode,
            candidate=self._candidates.state(self._forwarder.live, now=now),
            config_error=self.config_error,
            pods_known=self.pods_known,
            demand=self._demand_state(now, stable, panic, percentile),
            pods=tuple(pods),
            pools=tuple(_pools(pods)),
            width_mix={model: round(count / answers, 4) for model, count in mix.items()},
            decisions=tuple(
                DecisionState(
                    age_seconds=round(now - one.at, 3),
                    policy=one.policy,
                    pod=one.route.pod,
                    pool=one.pool,
                    model=one.route.width.model,
                    batch_cap=one.route.batch_cap,
                    rows=one.rows,
                    expected_seconds=round(one.route.expected_seconds, 6),
                    reason=str(one.route.reason),
                )
                for one in reversed(self._forwarder.decisions)
            ),
        )

    def _demand_state(
        self, now: float, stable: float, panic: float, percentile: float
    ) -> DemandState:
        demand = self._demand
        over = demand.observed_seconds(stable, now=now)
        long, short = demand.totals(stable, now=now), demand.totals(panic, now=now)
        last = demand.last_arrival
        return DemandState(
            stable_window_seconds=stable,
            panic_window_seconds=panic,
            observed_seconds=round(over, 3),
            stable_requests_per_second=long.requests / over,
            stable_rows_per_second=long.rows / over,
            panic_rows_per_second=short.rows / demand.observed_seconds(panic, now=now),
            rows_per_request=long.rows / long.requests if long.requests else 1.0,
            rejected_rows_per_second=long.rejected_rows / over,
            idle_seconds=None if last is None else round(max(0.0, now - last), 3),
            age_seconds=round(demand.age_seconds(now), 3),
            buffered_requests=len(self._buffer),
            buffered_rows=self._buffer.held_rows,
            buffered_bytes=self._buffer.held_bytes,
            slo_attainment=long.within_slo / long.ended if long.ended else None,
            latency_percentile=percentile,
            latency_seconds=long.latency_seconds(percentile),
        )

    def _pod(self, pod: Pod, now: float) -> PodState:
        pod.look(now)
        told = pod.telemetry is not None
        return PodState(
            name=pod.name,
            pool=pod.pool,
            ready=pod.endpoint.ready,
            ejected=self._pods.ejection.health(pod.name, now=now) is not Health.WELL,
            requests=pod.requests,
            in_flight_requests=len(pod.open_requests),
            in_flight_rows=pod.in_flight_rows,
            telemetry_age_seconds=round(now - pod.telemetry_at, 3) if told else None,
            telemetry=pod.telemetry,
        )

    # ---- for the metrics

    def gauges(self) -> Iterable[tuple[str, dict[str, float]]]:
        buffer, live = self._buffer, self._forwarder.live
        yield "buffered_requests", {"": len(buffer)}
        yield "buffered_rows", {"": buffer.held_rows}
        yield "buffered_bytes", {"": buffer.held_bytes}
        yield "body_bytes", {"": self._forwarder.body_bytes}
        yield "pods", {"": sum(pod.endpoint.ready for pod in self._pods)}
        yield "ejected_pods", {"": self._pods.ejection.ejected()}
        yield "config_ok", {"": self.config_error is None}
        yield "config_loads", {"": self.config_loads}
        yield "config_failures", {"": self.config_failures}
        yield "watch_failures", {"": self.watch_failures}
        mixture = next(
            (one for one in (live.policy, live.candidate) if isinstance(one, Mixture)), None
        )
        if mixture is not None:
            shares = zip(mixture.bases, mixture.shares(), strict=True)
            yield "mixture_share", {base.name: share for base, share in shares}
        yield from self._candidates.gauges(live)

    def counts(self) -> Iterable[tuple[str, Mapping[tuple[str, ...], float]]]:
        return self._candidates.counts(self._forwarder.live)

    def pods(self) -> Iterable[tuple[str, int, int]]:
        for pod in self._pods:
            yield pod.name, pod.requests, pod.in_flight_rows


def _pools(pods: Iterable[PodState]) -> Iterable[PoolState]:
    by_name: dict[str, list[PodState]] = {}
    for pod in pods:
        by_name.setdefault(pod.pool, []).append(pod)
    for name, members in sorted(by_name.items()):
        told = [pod.telemetry for pod in members if pod.telemetry is not None]
        free = [one.memory_free_bytes for one in told if one.memory_free_bytes is not None]
        backlogs = [one.backlog_seconds for one in told if 0.0 <= one.backlog_seconds < 1e6]
        yield PoolState(
            name=name,
            pods=len(members),
            ready=sum(pod.ready for pod in members),
            draining=sum(one.draining for one in told),
            ejected=sum(pod.ejected for pod in members),
            queued_rows=max(0, sum(one.queued_rows for one in told)) if told else None,
            backlog_seconds=sum(backlogs) / len(backlogs) if backlogs else None,
            warm_widths=tuple(
                sorted({w.model for one in told for w in one.widths if w.instances > 0})
            ),
            memory_free_bytes=max(0, min(free)) if free else None,
        )
