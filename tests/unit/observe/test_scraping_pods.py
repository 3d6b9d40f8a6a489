"""The operator asks pods only, takes little and follows nowhere (pitfall H1)."""

import asyncio

import pytest
from aiohttp import web

from slimscale.api.simworkload import Metrics
from slimscale.controllers.clock import SystemClock
from slimscale.observe.scrape import PodScraper, SampleOutcome, ScrapeTarget, scrape_target
from tests.support.http_server import Handler, serve
from tests.support.raw_objects import pod

GOOD = "slimscale_tasks_total 3\nslimscale_threads_applied 2\n"


async def _scrape(handler: Handler, pods: int = 1, limit_bytes: int = 2**20) -> list[SampleOutcome]:
    async with serve(handler) as port:
        scraper = PodScraper(SystemClock(), timeout_seconds=0.5, limit_bytes=limit_bytes)
        targets = [
            ScrapeTarget(f"p{n}", f"u{n}", "127.0.0.1", port, f"/metrics/{n}") for n in range(pods)
        ]
        try:
            return await scraper.fetch(targets)
        finally:
            await scraper.close()


async def test_a_pod_that_serves_the_contract_gives_a_sample() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=GOOD)

    [outcome] = await _scrape(answer)
    assert outcome.sample is not None
    assert outcome.sample.threads_applied == 2
    assert outcome.problem == ""


async def test_a_redirect_is_not_followed() -> None:
    followed = False

    async def secret(_request: web.Request) -> web.Response:
        nonlocal followed
        followed = True
        return web.Response(text=GOOD)

    async with serve(secret) as port:

        async def answer(_request: web.Request) -> web.Response:
            raise web.HTTPFound(f"http://127.0.0.1:{port}/latest/meta-data")

        [outcome] = await _scrape(answer)
    assert not followed
    assert outcome.sample is None
    assert "status 302" in outcome.problem


async def test_a_page_without_end_is_cut_off() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"slimscale_tasks_total 3\n" * 1000)

    [outcome] = await _scrape(answer, limit_bytes=100_000)
    assert outcome.sample is None
    assert "over 100000 bytes" in outcome.problem


async def test_a_pod_that_drips_is_given_up_and_the_others_still_count() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/0"):
            await asyncio.Event().wait()
        return web.Response(text=GOOD)

    outcomes = await _scrape(answer, pods=3)
    assert [outcome.sample is not None for outcome in outcomes] == [False, True, True]
    assert "no answer in time" in outcomes[0].problem


async def test_silent_pods_of_one_workload_do_not_hold_up_another() -> None:
    waiting: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if "silent" in request.path:
            waiting.append(request.path)
            await asyncio.Event().wait()
        return web.Response(text=GOOD)

    async with serve(answer) as port:
        scraper = PodScraper(SystemClock(), timeout_seconds=0.5, concurrency=4)
        silent = [ScrapeTarget(f"s{n}", f"s{n}", "127.0.0.1", port, "/silent") for n in range(20)]
        others = asyncio.create_task(scraper.fetch(silent))
        try:
            await asyncio.sleep(0)
            [outcome] = await scraper.fetch([ScrapeTarget("p", "u", "127.0.0.1", port, "/metrics")])
        finally:
            others.cancel()
            await scraper.close()
    assert outcome.sample is not None
    assert len(waiting) <= 2, "it had to wait until those before it had run out of time"


@pytest.mark.parametrize(
    "body", [b"\xff\xfe", b"slimscale_tasks_total NaN\n", b"slimscale_tasks_total " + b"9" * 5000]
)
async def test_a_broken_page_is_a_problem_not_an_exception(body: bytes) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body)

    [outcome] = await _scrape(answer)
    assert outcome.sample is None
    assert outcome.invalid
    assert outcome.problem


async def test_a_large_page_is_read_off_the_event_loop_with_the_same_result() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="other_total 1\n" * 20_000 + GOOD)

    [outcome] = await _scrape(answer)
    assert outcome.sample is not None
    assert outcome.sample.tasks_total == 3


async def test_no_answer_s_body_reaches_the_message() -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=500, text="password=hunter2", reason="hunter2")

    [outcome] = await _scrape(answer)
    assert "hunter2" not in outcome.problem


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "127.0.0.1",
        "::1",
        "fe80::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "0.0.0.0",  # noqa: S104 - an address to refuse
        "224.0.0.1",
        "kubernetes",
        "",
        None,
    ],
)
def test_addresses_that_no_pod_has_are_never_asked(address: str | None) -> None:
    raw = pod()
    raw["status"]["podIP"] = address
    assert scrape_target(raw, Metrics(), 0.0) is None


def test_port_and_path_come_from_the_spec_and_the_port_from_the_pod_s_annotation() -> None:
    metrics = Metrics(port=1234, path="/m")
    plain = scrape_target(pod(ip="10.1.2.3"), metrics, 0.0)
    assert plain is not None
    assert (plain.address, plain.port, plain.path) == ("10.1.2.3", 1234, "/m")
    own = scrape_target(pod(annotations={"slimscale.dev/metrics-port": "99"}), metrics, 0.0)
    assert own is not None
    assert own.port == 99
    six = scrape_target(pod(ip="fd00::7"), metrics, 0.0)
    assert six is not None
    assert six.address == "[fd00::7]"


@pytest.mark.parametrize("text", ["0", "65536", "-1", "80/../x", "٣", "@evil", "99999999999"])
def test_an_annotation_that_is_no_port_is_ignored(text: str) -> None:
    target = scrape_target(pod(annotations={"slimscale.dev/metrics-port": text}), Metrics(), 0.0)
    assert target is not None
    assert target.port == Metrics().port
