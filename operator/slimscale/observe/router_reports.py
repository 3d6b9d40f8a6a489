"""What the routers of a SlimInference tell: `GET /state` of their status port, read only.

The fields are those of `serving/router/state.py`, as far as the operator needs them; what is not
known is skipped, so operator and router need not be of one version.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Annotated

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from slimscale.api.serving_config import ROUTER_STATUS_PORT
from slimscale.api.sliminference import SlimInferenceSpec
from slimscale.domain.inference import PolicyReport, RouterReport, TelemetryOfPod
from slimscale.domain.serving import PodTelemetry
from slimscale.kubeapi.ports import Json
from slimscale.observe.scrape import pod_address

__all__ = ["RouterReader", "read_report"]

_log = logging.getLogger(__name__)
_MAX_ROUTERS = 50
_MAX_PODS = 2000
_MOST_WORDS = 512
Positive = Annotated[float, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True,
        allow_inf_nan=False,
    )  # fmt: skip


class _Demand(_Part):
    stable_requests_per_second: Positive | None = None
    stable_rows_per_second: Positive | None = None
    panic_rows_per_second: Positive | None = None
    rejected_rows_per_second: Positive | None = None
    idle_seconds: Positive | None = None
    age_seconds: Positive | None = None
    buffered_rows: int = Field(default=0, ge=0)
    slo_attainment: float | None = Field(default=None, ge=0, le=1)
    latency_seconds: Positive | None = None


class _Pod(_Part):
    name: str = Field(max_length=253)
    telemetry_age_seconds: Positive | None = None
    telemetry: PodTelemetry | None = None


class _Policy(_Part):
    asked: str = Field(max_length=32)
    acting: str = Field(max_length=32)
    stage: str = Field(default="", max_length=16)
    reason: str = Field(default="", max_length=64)
    words: str = ""
    falls: int = Field(default=0, ge=0)
    version: str = ""
    error: str | None = None
    overruled_share: float | None = Field(default=None, ge=0, le=1)


class _State(_Part):
    candidate: _Policy | None = None
    demand: _Demand
    pods: tuple[_Pod, ...] = Field(default=(), max_length=_MAX_PODS)
    width_mix: dict[str, float] = Field(default_factory=dict, max_length=64)


def read_report(body: bytes, router: str) -> RouterReport:
    """One router's answer.

    Raises:
        ValueError: it is no state; the message holds nothing of the body.
    """
    try:
        state = _State.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"])) or "the answer"
        raise ValueError(f"{field} is not as expected") from None
    demand = state.demand
    rate = demand.stable_requests_per_second or 0.0
    # A router that has never had a request has been idle since its start.
    idle = demand.idle_seconds if demand.idle_seconds is not None else demand.age_seconds
    return RouterReport(
        router=router,
        pods=tuple(
            TelemetryOfPod(pod.name, pod.telemetry, pod.telemetry_age_seconds)
            for pod in state.pods
            if pod.telemetry is not None and pod.telemetry_age_seconds is not None
        ),
        stable_rows_per_second=demand.stable_rows_per_second,
        panic_rows_per_second=demand.panic_rows_per_second,
        requests_per_second=demand.stable_requests_per_second,
        rejected_rows_per_second=demand.rejected_rows_per_second,
        buffered_rows=demand.buffered_rows,
        idle_seconds=idle,
        slo_attainment=demand.slo_attainment,
        latency_seconds=demand.latency_seconds,
        width_requests_per_second={name: share * rate for name, share in state.width_mix.items()},
        policy=None if state.candidate is None else _policy(state.candidate),
    )


def _policy(told: _Policy) -> PolicyReport:
    return PolicyReport(
        told.asked,
        told.acting,
        stage=told.stage,
        reason=told.reason,
        words=told.words[:_MOST_WORDS],
        falls=told.falls,
        version=told.version[:64],
        error=None if told.error is None else told.error[:_MOST_WORDS],
        overruled_share=told.overruled_share,
    )


class RouterReader:
    """Implements `inference.RouterSource`. Make it inside the event loop; close it at the end."""

    def __init__(
        self, *, timeout_seconds: float = 3.0, limit_bytes: int = 2**20, concurrency: int = 32
    ) -> None:
        self._limit_bytes = limit_bytes
        self._gate = asyncio.Semaphore(concurrency)
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout_seconds),
            connector=aiohttp.TCPConnector(limit=concurrency, force_close=True),
            trust_env=False,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        await self._session.close()

    async def fetch(
        self, routers: Iterable[Json], spec: SlimInferenceSpec
    ) -> tuple[RouterReport, ...]:
        """What each of these pods reports; those that do not answer are left out."""
        scaling = spec.scaling
        query = f"stable={scaling.stable_window_seconds}&panic={scaling.panic_window_seconds}"
        query += f"&percentile={spec.slo.percentile}"
        asked = [
            (str(pod["metadata"]["name"]), address)
            for pod in list(routers)[:_MAX_ROUTERS]
            if (address := pod_address((pod.get("status") or {}).get("podIP"))) is not None
        ]
        found = await asyncio.gather(*(self._one(name, host, query) for name, host in asked))
        return tuple(report for report in found if report is not None)

    async def _one(self, router: str, address: str, query: str) -> RouterReport | None:
        url = f"http://{address}:{ROUTER_STATUS_PORT}/state?{query}"
        headers = {"Accept": "application/json", "User-Agent": "slimscale-operator"}
        async with self._gate:
            try:
                return read_report(await self._read(url, headers), router)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                words = str(error) if isinstance(error, ValueError) else type(error).__name__
                _log.info("router not read", extra={"router": router, "error": words[:200]})
                return None

    async def _read(self, url: str, headers: dict[str, str]) -> bytes:
        async with self._session.get(url, headers=headers, allow_redirects=False) as response:
            if response.status != 200:
                raise ValueError(f"status {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                body += chunk
                if len(body) > self._limit_bytes:
                    raise ValueError(f"over {self._limit_bytes} bytes")
            return bytes(body)
