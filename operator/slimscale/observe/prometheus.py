"""The contract's series out of a Prometheus, whose address only the operator's settings know."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException

from slimscale.api.simworkload import PrometheusMetrics
from slimscale.domain.contract import MetricName
from slimscale.exceptions import InvalidSpec, Unavailable
from slimscale.observe.exposition import InvalidSamples, NoContract, Series, sample_from_series
from slimscale.observe.promql import range_query
from slimscale.observe.scrape import SampleOutcome, ScrapeTarget

__all__ = ["PrometheusReader", "PrometheusSource", "checked_url"]

_PODS_A_QUERY = 25
_SERIES = tuple(
    [
        f"{name}_{part}"
        for name in (MetricName.TASK_SECONDS, MetricName.DISPATCH_SECONDS)
        for part in ("bucket", "sum")
    ]
    + [
        value
        for name, value in vars(MetricName).items()
        if not name.startswith("_")
        and value not in (MetricName.TASK_SECONDS, MetricName.DISPATCH_SECONDS)
    ]
)

Result = dict[str, Any]


def checked_url(url: str) -> str:
    """The operator's own setting, checked at start.

    Raises:
        ValueError: no http or https URL with a host, or one that carries a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the Prometheus address must be an http:// or https:// URL")
    if parts.username or parts.password:
        raise ValueError("the Prometheus address holds a password; use a token file instead")
    return url.rstrip("/")


class PrometheusReader:
    """Blocking calls, in threads of its own, each with a time-out."""

    def __init__(
        self, url: str, *, token_file: Path | None = None, timeout_seconds: float = 5.0
    ) -> None:
        self._url = checked_url(url)
        self._token_file = token_file
        self._timeout_seconds = timeout_seconds
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="prometheus")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def query(self, query: str) -> list[Result]:
        """Raises Unavailable; its message holds neither address nor answer."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(2 * self._timeout_seconds):
                result = await loop.run_in_executor(self._threads, self._query, query)
        except TimeoutError:
            raise Unavailable("Prometheus gives no answer in time") from None
        return result

    def _query(self, query: str) -> list[Result]:
        session = requests.Session()
        session.trust_env = False  # neither proxies nor .netrc of the environment
        session.max_redirects = 0
        try:
            prometheus = PrometheusConnect(
                url=self._url,
                headers=self._headers(),
                retry=0,
                session=session,
                timeout=self._timeout_seconds,
            )
            result = prometheus.custom_query(query)
        except PrometheusApiClientException:
            raise Unavailable("Prometheus refuses the query or is overloaded") from None
        except requests.Timeout:
            raise Unavailable("Prometheus gives no answer in time") from None
        except (requests.RequestException, OSError, ValueError, KeyError, TypeError) as error:
            raise Unavailable(f"Prometheus cannot be asked: {type(error).__name__}") from None
        finally:
            session.close()
        if not isinstance(result, list):
            raise Unavailable("Prometheus answers in an unknown form")
        return result

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        # Read each time: tokens in files are rotated.
        return {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}


@dataclass(frozen=True, slots=True)
class PrometheusSource:
    """Implements `sampling.SampleSource` for one SimWorkload."""

    reader: PrometheusReader
    namespace: str
    settings: PrometheusMetrics
    max_age_seconds: float

    async def fetch(self, targets: Iterable[ScrapeTarget]) -> Sequence[SampleOutcome]:
        wanted = list(targets)
        outcomes: list[SampleOutcome] = []
        for start in range(0, len(wanted), _PODS_A_QUERY):
            chunk = wanted[start : start + _PODS_A_QUERY]
            results = await self.reader.query(self._query_for(chunk))
            for target in chunk:
                outcomes.extend(_outcomes(target, results, self.settings))
        return outcomes

    def _query_for(self, targets: Iterable[ScrapeTarget]) -> str:
        forced = {"__name__", self.settings.namespace_label, self.settings.pod_label}
        if forced & set(self.settings.matchers):
            raise InvalidSpec(
                "spec.metrics.prometheus.matchers",
                "sets a label that the operator matches itself",
                f"leave out {', '.join(sorted(forced))}",
            )
        return range_query(
            prefix=self.settings.metric_prefix,
            names=_SERIES,
            namespace_label=self.settings.namespace_label,
            namespace=self.namespace,
            pod_label=self.settings.pod_label,
            pods=[target.pod for target in targets],
            matchers=self.settings.matchers,
            seconds=max(1, math.ceil(self.max_age_seconds)),
        )


def _outcomes(
    target: ScrapeTarget, results: Iterable[Result], settings: PrometheusMetrics
) -> Iterator[SampleOutcome]:
    """One outcome for each scrape that Prometheus did of the pod, oldest first."""
    at: dict[float, list[Series]] = defaultdict(list)
    for result in results:
        labels = result.get("metric") or {}
        if labels.get(settings.pod_label) != target.pod:
            continue
        name = str(labels.get("__name__", "")).removeprefix(f"{settings.metric_prefix}_")
        for time_seconds, value in result.get("values") or []:
            # A pod of a StatefulSet inherits its name, and with it the series of its forerunner.
            if float(time_seconds) >= target.created_at_seconds:
                at[float(time_seconds)].append((name, labels, _number(value)))
    if not at:
        yield SampleOutcome(target.pod_uid, problem="Prometheus has no series of this pod")
    for time_seconds in sorted(at):
        try:
            sample = sample_from_series(
                at[time_seconds], pod_uid=target.pod_uid, sampled_at_seconds=time_seconds
            )
        except NoContract as error:
            yield SampleOutcome(target.pod_uid, problem=str(error))
        except InvalidSamples as error:
            yield SampleOutcome(target.pod_uid, problem=str(error), invalid=True)
        else:
            yield SampleOutcome(target.pod_uid, sample=sample)


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
