"""The router as one object: starts its parts, takes up new configurations, ends without a loss."""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry

from slimscale.api.serving_config import RouterConfig
from slimscale.routing.ejection import EjectionReason
from slimscale.serving.config_file import ConfigFile
from slimscale.serving.headers import RETRY_AFTER
from slimscale.serving.http import ClientPool, HttpServer, Limits, Request, Response
from slimscale.serving.http.messages import JSON_TYPE
from slimscale.serving.http.status import StatusServer
from slimscale.serving.protocol.errors import error_response
from slimscale.serving.router.buffer import RequestBuffer
from slimscale.serving.router.candidate import CandidateKeeper
from slimscale.serving.router.decisions_page import read_decisions
from slimscale.serving.router.endpoints import ApiServer, Endpoint, EndpointWatch
from slimscale.serving.router.forward import Forwarder
from slimscale.serving.router.front import FrontDoor
from slimscale.serving.router.learned import keep_candidates
from slimscale.serving.router.live import make_live
from slimscale.serving.router.metrics import RouterMetrics
from slimscale.serving.router.pods import Pod, Pods
from slimscale.serving.router.poll import Poller
from slimscale.serving.router.settings import RouterSettings
from slimscale.serving.router.summary import Summary
from slimscale.serving.router.windows import Demand

__all__ = ["Router"]

_log = logging.getLogger(__name__)

_CONNECTIONS_A_POD = 1024
_LEAVE_SECONDS = 2.0
"""After the wait: time in which each answer tells its client to connect elsewhere."""
_WINDOW_SECONDS = (1.0, 3600.0)


class Router:
    """`start`, then `stop`. Needs a running event loop."""

    def __init__(
        self, settings: RouterSettings, rng: Random, *, candidates: CandidateKeeper | None = None
    ) -> None:
        """Reads router.json: OSError or ValueError where there is none to begin with."""
        self._settings = settings
        self._rng = rng
        self._file = ConfigFile(settings.config, RouterConfig)
        now = asyncio.get_running_loop().time()
        config = self._file.load()
        self.candidates = candidates or keep_candidates(settings.config.parent)
        live = make_live(config, loaded=self.candidates.poll(config), now=now)
        self.metrics = RouterMetrics()
        self.pods = Pods(live.ejection_rules, changed=self._pods_changed)
        self.pods.set_traits(live.config.pools)
        if live.learned is not None:
            live.learned.follow(self.pods.ejection.slowdowns)
        self.pods.ejected_now = self._ejected
        self._buffer = RequestBuffer(live.buffer_limits)
        self._demand = Demand(now=now)
        self._client = ClientPool(per_host=_CONNECTIONS_A_POD, connect_seconds=2.0)
        self.forwarder = Forwarder(
            live,
            pods=self.pods,
            buffer=self._buffer,
            demand=self._demand,
            metrics=self.metrics,
            client=self._client,
            rng=rng,
        )
        self._front = FrontDoor(self.forwarder, self.pods, self._client)
        self.summary = Summary(
            settings.pod_name,
            forwarder=self.forwarder,
            pods=self.pods,
            buffer=self._buffer,
            demand=self._demand,
            candidates=self.candidates,
        )
        self.metrics.surroundings = self.summary
        registry = CollectorRegistry()
        registry.register(self.metrics)
        self._poller = Poller(
            self.pods,
            self._client,
            seconds=lambda: self.forwarder.live.config.telemetry_poll_seconds,
        )
        self.server = HttpServer(
            self._front.handle,
            limits=Limits(body_bytes=live.config.max_body_bytes),
            name="router",
            refusal=_refusal,
            refused=self.metrics.answered,
        )
        self.status = StatusServer(
            registry, live=lambda: None, ready=self._not_ready, pages=self._pages()
        )
        self._leaving = False
        self._watch: EndpointWatch | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        settings = self._settings
        self._tasks.append(asyncio.create_task(self._follow_config()))
        self._tasks.append(asyncio.create_task(self._poller.run()))
        if settings.api_host and not settings.endpoints:
            self._watch = self._make_watch()
            self._tasks.append(asyncio.create_task(self._watch.run()))
        else:
            self.set_endpoints(settings.fixed_endpoints())
        host = settings.host or None
        await self.status.start(host, settings.status_port)
        await self.server.start(host, settings.port)
        _log.info("router of %s on port %d", self.forwarder.live.config.service, self.server.port)

    async def stop(self) -> None:
        """Not ready at once; serve on while endpoints propagate; then let clients go, then end."""
        self._leaving = True
        await asyncio.sleep(self._settings.drain_wait_seconds)
        self.server.drain()
        await asyncio.sleep(min(_LEAVE_SECONDS, self._settings.drain_wait_seconds))
        await self.server.close(self._settings.drain_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.status.close()
        await self._client.close()

    # ---- what changes while running

    async def _follow_config(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self.poll_config()

    def poll_config(self) -> None:
        """Look at router.json and the policy file once: each is taken up whole, or refused whole."""
        config = self._file.poll()
        self.summary.config_error = self._file.error
        self.summary.config_loads = self._file.loads
        self.summary.config_failures = self._file.failures
        if self._watch is not None:
            self.summary.watch_failures = self._watch.failures
        before, now = self.forwarder.live, asyncio.get_running_loop().time()
        self.candidates.tick(before, now=now)
        loaded = self.candidates.poll(config or before.config)
        if config is None and loaded is before.loaded:
            return
        live = make_live(config or before.config, before, loaded=loaded, now=now)
        if live.learned is not None:
            live.learned.follow(self.pods.ejection.slowdowns)
        self.forwarder.live = live
        if config is None:
            return
        self._buffer.limits = live.buffer_limits
        self.pods.set_traits(config.pools)
        self.pods.set_rules(live.ejection_rules)
        self.server.limits = Limits(body_bytes=config.max_body_bytes)
        self._front.forget_metadata()

    def _make_watch(self) -> EndpointWatch:
        settings = self._settings
        folder = settings.service_account
        config = self.forwarder.live.config
        has_ca = (folder / "ca.crt").exists()
        has_token = (folder / "token").exists()
        api = ApiServer(
            settings.api_host,
            settings.api_port,
            token_file=folder / "token" if has_token else None,
            ca_file=folder / "ca.crt" if has_ca else None,
        )
        return EndpointWatch(
            api,
            namespace=config.namespace,
            service=config.endpoints_service,
            changed=self.set_endpoints,
            rng=self._rng,
        )

    def set_endpoints(self, endpoints: dict[str, Endpoint]) -> None:
        """The pods, as the watch or the settings have them."""
        self.summary.pods_known = True
        self.pods.update(endpoints)

    def _pods_changed(self, gone: list[Pod]) -> None:
        for pod in gone:
            self._client.forget(pod.host, pod.port)
        self._poller.ask_quiet_ones()
        live = self.forwarder.live
        live.delays.forget(pod.name for pod in self.pods)
        self.forwarder.release(live.config.max_batch_rows)

    def _ejected(self, _pod: Pod, reason: EjectionReason) -> None:
        self.metrics.ejections[reason] += 1

    # ---- the status port

    def _not_ready(self) -> str | None:
        if self._leaving:
            return "shutting down"
        return None if self.summary.pods_known else "the pods are not listed yet"

    def _pages(self) -> dict[str, Callable[[Request], Response]]:
        return {"/state": self._state, "/decisions": self._decisions}

    def _decisions(self, request: Request) -> Response:
        """The index, or with `?segment=NUMBER` one of its segments."""
        return read_decisions(self.forwarder.live.log, request.query)

    def _state(self, request: Request) -> Response:
        query = parse_qs(request.query)
        try:
            stable = float(query.get("stable", ["60"])[0])
            panic = float(query.get("panic", ["6"])[0])
            percentile = float(query.get("percentile", ["95"])[0])
        except ValueError:
            stable = panic = percentile = -1.0
        least, most = _WINDOW_SECONDS
        if not (least <= stable <= most and least <= panic <= most):
            return error_response(400, "stable and panic: send seconds from 1 to 3600")
        if not 50.0 <= percentile <= 99.99:
            return error_response(400, "percentile: send percent from 50 to 99.99")
        now = asyncio.get_running_loop().time()
        state = self.summary.state(now=now, stable=stable, panic=panic, percentile=percentile)
        return Response(200, state.model_dump_json(by_alias=True).encode(), (JSON_TYPE,))


def _refusal(status: int, text: str) -> Response:
    response = error_response(status, text)
    if status == 503:
        response.headers = (*response.headers, (RETRY_AFTER, b"1"))
    return response
