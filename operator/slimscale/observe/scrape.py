"""The pods' own metrics: only pod addresses, little, quickly, without redirects."""

import asyncio
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

import aiohttp

from slimscale.api.names import ANNOTATION_METRICS_PORT
from slimscale.api.simworkload import Metrics
from slimscale.domain.clock import Clock
from slimscale.domain.contract import ContractSample
from slimscale.kubeapi.ports import Json
from slimscale.observe.exposition import InvalidSamples, NoContract, read_page

__all__ = ["PodScraper", "SampleOutcome", "ScrapeTarget", "pod_address", "scrape_target"]

_OFF_LOOP_BYTES = 64 * 1024
"""Parsing more than this takes milliseconds that the probes would wait for."""
_CONTRACT_PREFIX = "slimscale"


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    pod: str
    pod_uid: str
    address: str
    port: int
    path: str
    created_at_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SampleOutcome:
    """What one look at one pod gave. invalid: it answered, but with values that cannot be used."""

    pod_uid: str
    sample: ContractSample | None = None
    problem: str = ""
    invalid: bool = False


def scrape_target(pod: Json, metrics: Metrics, created_at_seconds: float) -> ScrapeTarget | None:
    """None: the pod has no address yet, or one that no pod network uses."""
    status: Json = pod.get("status") or {}
    metadata: Json = pod.get("metadata") or {}
    address = pod_address(status.get("podIP"))
    if address is None or status.get("phase") != "Running":
        return None
    annotated = (metadata.get("annotations") or {}).get(ANNOTATION_METRICS_PORT, "")
    return ScrapeTarget(
        pod=str(metadata.get("name", "")),
        pod_uid=str(metadata.get("uid", "")),
        address=address,
        port=_port(annotated) or metrics.port,
        path=metrics.path,
        created_at_seconds=created_at_seconds,
    )


def pod_address(text: object) -> str | None:
    """A host for URLs out of a podIP; None: none that a pod network uses."""
    try:
        address = ipaddress.ip_address(str(text))
    except ValueError:
        return None
    # ::ffff:127.0.0.1 is 127.0.0.1 to the kernel.
    address = getattr(address, "ipv4_mapped", None) or address
    # Cloud metadata services live on link-local addresses; this pod's own ports on loopback.
    if address.is_loopback or address.is_link_local or address.is_multicast:
        return None
    if address.is_unspecified:
        return None
    return f"[{address}]" if address.version == 6 else str(address)


def _port(text: object) -> int | None:
    digits = str(text)
    if not digits.isascii() or not digits.isdigit() or len(digits) > 5:
        return None
    return int(digits) if 1 <= int(digits) <= 65535 else None


class PodScraper:
    """Implements `sampling.SampleSource`. Make it inside the event loop; close it at the end."""

    def __init__(
        self,
        clock: Clock,
        *,
        timeout_seconds: float = 3.0,
        limit_bytes: int = 2**20,
        concurrency: int = 32,
    ) -> None:
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._gate = asyncio.Semaphore(concurrency)
        self._share = max(1, concurrency // 2)
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=timeout_seconds),
            connector=aiohttp.TCPConnector(limit=concurrency, force_close=True),
            trust_env=False,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        await self._session.close()

    async def fetch(self, targets: Iterable[ScrapeTarget]) -> list[SampleOutcome]:
        """Look at all pods, some at a time; each has its own outcome, none raises.

        One workload holds at most half of the places: its hundred silent pods are not to make the
        samples of the others stale.
        """
        share = asyncio.Semaphore(self._share)
        return list(await asyncio.gather(*(self._fetch_one(target, share) for target in targets)))

    async def _fetch_one(self, target: ScrapeTarget, share: asyncio.Semaphore) -> SampleOutcome:
        async with share, self._gate:
            try:
                body = await self._read(target)
            except _Unusable as error:
                return SampleOutcome(target.pod_uid, problem=str(error))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                kind = "no answer in time" if isinstance(error, TimeoutError) else "no connection"
                return SampleOutcome(target.pod_uid, problem=f"port {target.port}: {kind}")
        try:
            if len(body) > _OFF_LOOP_BYTES:
                sample = await asyncio.to_thread(self._parse, body, target.pod_uid)
            else:
                sample = self._parse(body, target.pod_uid)
        except NoContract as error:
            return SampleOutcome(target.pod_uid, problem=str(error))
        except InvalidSamples as error:
            return SampleOutcome(target.pod_uid, problem=str(error), invalid=True)
        return SampleOutcome(target.pod_uid, sample=sample)

    def _parse(self, body: bytes, pod_uid: str) -> ContractSample:
        try:
            text = body.decode()
        except UnicodeDecodeError:
            raise InvalidSamples("the page is not UTF-8") from None
        return read_page(
            text, prefix=_CONTRACT_PREFIX, pod_uid=pod_uid, now_seconds=self._clock.now_seconds()
        )

    async def _read(self, target: ScrapeTarget) -> bytes:
        url = f"http://{target.address}:{target.port}{target.path}"
        headers = {
            "Accept": "text/plain;version=0.0.4",
            "Accept-Encoding": "identity",
            "User-Agent": "slimscale-operator",
        }
        async with self._session.get(url, headers=headers, allow_redirects=False) as response:
            if response.status != 200:
                raise _Unusable(f"port {target.port}: status {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_chunked(64 * 1024):
                body += chunk
                if len(body) > self._limit_bytes:
                    raise _Unusable(f"the page is over {self._limit_bytes} bytes")
            return bytes(body)


class _Unusable(Exception):
    pass
