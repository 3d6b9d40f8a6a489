"""Samples out of a Prometheus: whose address users cannot choose, whose queries they cannot bend."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from slimscale.api.simworkload import PrometheusMetrics
from slimscale.exceptions import InvalidSpec, Unavailable
from slimscale.kubeapi.ports import Json
from slimscale.observe.prometheus import PrometheusReader, PrometheusSource, checked_url
from slimscale.observe.promql import any_of, equals, range_query
from slimscale.observe.scrape import ScrapeTarget
from tests.support.http_server import Handler, serve

TARGET = ScrapeTarget("ants-0", "u0", "10.0.0.1", 1, "/", created_at_seconds=100.0)
HOSTILE = ['a"b', "a\\b", "a\nb", "{}", ".*", '"} or vector(0) #', "a|b", "ä", "$1", "(?i)x"]


def _series(name: str, values: list[tuple[float, str]], pod: str = "ants-0", **labels: str) -> Json:
    metric = {"__name__": f"slimscale_{name}", "namespace": "ns", "pod": pod, **labels}
    return {"metric": metric, "values": [list(value) for value in values]}


def _answer(results: list[Json]) -> web.Response:
    return web.json_response(
        {"status": "success", "data": {"resultType": "matrix", "result": results}}
    )


@asynccontextmanager
async def source_of(
    handler: Handler, settings: PrometheusMetrics | None = None, token_file: Path | None = None
) -> AsyncIterator[PrometheusSource]:
    async with serve(handler) as port:
        reader = PrometheusReader(
            f"http://127.0.0.1:{port}", token_file=token_file, timeout_seconds=0.5
        )
        yield PrometheusSource(reader, "ns", settings or PrometheusMetrics(), 60)
        reader.close()


async def test_each_scrape_that_prometheus_did_becomes_a_sample_with_its_own_time() -> None:
    asked: list[str] = []

    async def prometheus(request: web.Request) -> web.Response:
        asked.append(request.query["query"])
        return _answer(
            [
                _series("tasks_total", [(200.0, "5"), (205.0, "9")]),
                _series("threads_applied", [(200.0, "2"), (205.0, "3")]),
                _series("task_seconds_bucket", [(205.0, "9")], le="+Inf"),
                _series("task_seconds_sum", [(205.0, "0.9")]),
                _series("tasks_total", [(205.0, "777")], pod="somebody-else"),
            ]
        )

    async with source_of(prometheus) as source:
        outcomes = await source.fetch([TARGET])
    samples = [outcome.sample for outcome in outcomes]
    assert [s and (s.sampled_at_seconds, s.tasks_total, s.threads_applied) for s in samples] == [
        (200.0, 5.0, 2),
        (205.0, 9.0, 3),
    ]
    assert samples[1] is not None
    assert samples[1].task is not None
    assert 'namespace="ns"' in asked[0]
    assert asked[0].endswith("[60s]")


async def test_series_of_an_earlier_pod_of_the_same_name_are_not_this_pod_s() -> None:
    async def prometheus(_request: web.Request) -> web.Response:
        return _answer([_series("tasks_total", [(99.0, "5000"), (101.0, "1")])])

    async with source_of(prometheus) as source:
        outcomes = await source.fetch([TARGET])
    assert [o.sample and o.sample.tasks_total for o in outcomes] == [1.0]


async def test_not_a_number_is_invalid_and_an_empty_answer_is_unknown_not_zero() -> None:
    answers: list[list[Json]] = [[_series("tasks_total", [(200.0, "NaN")])], []]

    async def prometheus(_request: web.Request) -> web.Response:
        return _answer(answers.pop(0))

    async with source_of(prometheus) as source:
        [broken] = await source.fetch([TARGET])
        [empty] = await source.fetch([TARGET])
    assert broken.invalid
    assert empty.sample is None
    assert not empty.invalid
    assert "no series" in empty.problem


async def _redirect(request: web.Request) -> web.Response:
    if request.path == "/elsewhere":
        return _answer([_series("tasks_total", [(200.0, "5")])])
    raise web.HTTPFound("/elsewhere")


async def _error(_request: web.Request) -> web.Response:
    return web.Response(status=500, text="token=hunter2")


async def _nonsense(_request: web.Request) -> web.Response:
    return web.Response(text="hunter2")


async def _hang(_request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize("handler", [_redirect, _error, _nonsense, _hang])
async def test_a_prometheus_that_fails_is_unavailable_and_its_words_are_not_repeated(
    handler: Handler,
) -> None:
    async with source_of(handler) as source:
        with pytest.raises(Unavailable) as caught:
            await source.fetch([TARGET])
    assert "hunter2" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


async def test_the_token_is_read_for_each_query(tmp_path: Path) -> None:
    seen: list[str] = []

    async def prometheus(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return _answer([])

    token = tmp_path / "token"
    token.write_text("one\n")
    async with source_of(prometheus, token_file=token) as source:
        await source.fetch([TARGET])
        token.write_text("two\n")
        await source.fetch([TARGET])
    assert seen == ["Bearer one", "Bearer two"]


async def test_many_pods_are_asked_for_in_several_queries() -> None:
    lengths: list[int] = []

    async def prometheus(request: web.Request) -> web.Response:
        lengths.append(len(str(request.url)))
        return _answer([])

    targets = [ScrapeTarget(f"{'x' * 200}-{n}", f"u{n}", "", 1, "/") for n in range(60)]
    async with source_of(prometheus) as source:
        assert len(await source.fetch(targets)) == 60
    assert len(lengths) == 3
    assert max(lengths) < 16_000


@pytest.mark.parametrize("label", ["namespace", "pod", "__name__"])
async def test_a_user_s_matcher_cannot_take_the_place_of_ours(label: str) -> None:
    async def prometheus(_request: web.Request) -> web.Response:
        return _answer([])

    settings = PrometheusMetrics(matchers={label: "other"})
    async with source_of(prometheus, settings) as source:
        with pytest.raises(InvalidSpec, match="matches itself"):
            await source.fetch([TARGET])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:///etc/passwd",
        "gopher://x",
        "http://",
        "ftp://h/",
        "prometheus:9090",
        "http://u:p@h",
    ],
)
def test_only_http_addresses_without_a_password_are_taken(url: str) -> None:
    with pytest.raises(ValueError, match="Prometheus address"):
        checked_url(url)


def _parse(selector: str) -> dict[str, tuple[str, str]]:
    """A strict reader of label matchers: what a value is after unquoting, as PromQL would."""
    assert selector[0] == "{"
    found: dict[str, tuple[str, str]] = {}
    rest = selector[1:]
    while not rest.startswith("}"):
        match = re.match(r'([a-zA-Z_]\w*)(=~|=)("(?:[^"\\\n]|\\.)*"),?', rest)
        assert match is not None, rest
        found[match[1]] = (match[2], json.loads(match[3]))
        rest = rest[match.end() :]
    assert re.fullmatch(r"}\[\d+s\]", rest), f"something follows the selector: {rest}"
    return found


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("place", ["namespace", "matcher", "pod"])
def test_no_text_leaves_its_quotes_and_the_namespace_is_always_matched(
    text: str, place: str
) -> None:
    """H2."""
    values: dict[str, Any] = {"namespace": "ns", "pods": ["p"], "matchers": {}}
    change: dict[str, Callable[[], None]] = {
        "namespace": lambda: values.update(namespace=text),
        "matcher": lambda: values.update(matchers={"job": text}),
        "pod": lambda: values.update(pods=[text]),
    }
    change[place]()
    query = range_query(
        prefix="slimscale", names=["tasks_total"], namespace_label="namespace", pod_label="pod",
        seconds=60, **values,
    )  # fmt: skip
    parsed = _parse(query)
    assert parsed["namespace"] == ("=", values["namespace"])
    if place == "matcher":
        assert parsed["job"] == ("=", text)
    assert re.fullmatch(parsed["pod"][1], values["pods"][0]), "a name matches itself"
    assert not re.fullmatch(parsed["pod"][1], values["pods"][0] + "x"), "and nothing else"


@pytest.mark.parametrize("label", ['a"', "a b", "", "1a", "a=", "ä"])
def test_a_label_name_that_is_none_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="label's name"):
        equals(label, "x")
    with pytest.raises(ValueError, match="label's name"):
        any_of(label, ["x"])
