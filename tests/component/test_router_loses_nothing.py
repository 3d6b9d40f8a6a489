"""Not one request is lost or answered twice while pods die, refuse, hang or come and go."""

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from slimscale.domain.serving import PodTelemetry
from slimscale.serving import headers as names
from slimscale.serving.http import ClientResponse, ExchangeFailed, Request, Response
from slimscale.serving.protocol.errors import error_response
from tests.support.fake_sidecar import FakeSidecar, body_of, fake_sidecar, number_in
from tests.support.routers import RouterUnderTest, router_config, running_router, until
from tests.support.routing_cases import telemetry

pytestmark = pytest.mark.component


def start(
    router: RouterUnderTest, numbers: range, **headers: str
) -> list[asyncio.Task[ClientResponse]]:
    """One request a number, all at once."""
    return [
        asyncio.create_task(router.infer(body_of(number, request_id=f"r{number}"), **headers))
        for number in numbers
    ]


async def answers(tasks: list[asyncio.Task[ClientResponse]]) -> list[int]:
    """The number in each answer. All must be good ones."""
    replies = await asyncio.gather(*tasks)
    assert [reply.status for reply in replies] == [200] * len(tasks)
    return [number_in(reply.body) for reply in replies]


async def until_got(sidecar: FakeSidecar, count: int) -> None:
    for _ in range(count):
        await sidecar.got.get()


async def until_held(router: RouterUnderTest, count: int) -> None:
    while (await router.state()).demand.buffered_requests != count:
        pass


async def until_both_got(first: FakeSidecar, second: FakeSidecar, count: int) -> None:
    await until(lambda: len(first.bodies) + len(second.bodies) >= count)


async def until_ready_is_taken_back(router: RouterUnderTest) -> None:
    while (await router.status("/readyz")).status == 200:
        pass


def refuse(status: int, retry_after: float | None = None) -> Response:
    return error_response(status, "not now", retry_after_seconds=retry_after)


async def test_requests_in_flight_at_a_killed_pod_are_answered_by_another(tmp_path: Path) -> None:
    async with (
        fake_sidecar("a") as dies, fake_sidecar("b") as lives,
        running_router(tmp_path, dies, lives) as router,
    ):  # fmt: skip
        dies.open.clear()
        lives.open.clear()
        tasks = start(router, range(40))
        await until_both_got(dies, lives, 40)
        assert dies.bodies
        await dies.kill()
        lives.open.set()
        assert await answers(tasks) == list(range(40))
        assert sum(lives.ran.values()) == 40
        assert set(lives.ran.values()) == {1}
        assert router.is_at_rest()
        metrics = await router.metrics()
    lost = 'slimscale_router_retries_total{reason="connection_lost"}'
    assert metrics[lost] == len(dies.bodies)


async def test_a_pod_that_nobody_listens_on_costs_no_request(tmp_path: Path) -> None:
    async with (
        fake_sidecar("a") as dead, fake_sidecar("b") as lives,
        running_router(tmp_path, dead, lives) as router,
    ):  # fmt: skip
        await dead.kill()
        assert await answers(start(router, range(20))) == list(range(20))
        assert sum(lives.ran.values()) == 20


async def test_the_only_pod_may_die_and_come_back(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        pod.open.clear()
        tasks = start(router, range(5))
        await until_got(pod, 5)
        await pod.kill()
        await until_held(router, 5)
        pod.open.set()
        await pod.start()
        assert await answers(tasks) == list(range(5))
        assert router.is_at_rest()


async def test_a_slow_pod_is_waited_for_and_never_asked_twice(tmp_path: Path) -> None:
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path, first, second) as router,
    ):  # fmt: skip
        for pod in (first, second):
            pod.open.clear()
        replies = await asyncio.gather(*start(router, range(4), slimscale_deadline_ms="80"))
        ran = first.ran + second.ran
        assert [reply.status for reply in replies] == [504] * 4
        assert "deadline" in json.loads(replies[0].body)["error"]
        assert ran == Counter({b"r%d" % number: 1 for number in range(4)})
        assert router.is_at_rest()


async def test_a_client_that_goes_away_takes_its_work_along(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        pod.open.clear()
        task = start(router, range(1))[0]
        await pod.got.get()
        task.cancel()
        await pod.cancelled.wait()
        pod.open.set()
        assert await answers(start(router, range(3))) == [0, 1, 2]
        assert router.is_at_rest()


async def test_a_client_that_goes_away_during_a_second_try_disturbs_nobody_else(
    tmp_path: Path,
) -> None:
    """The connection of the first try serves another request by then."""
    async with fake_sidecar("a") as first, fake_sidecar("b") as second:
        second.telemetry = telemetry(backlog=0.1)  # so that all begin at the first
        async with running_router(tmp_path, first, second) as router:
            second.open.clear()
            first.answer_with = lambda _request: refuse(503)
            goes = start(router, range(1))[0]
            await until(lambda: len(second.bodies) == 1)
            first.answer_with = lambda _request: None
            first.open.clear()
            other = start(router, range(1, 2))
            await until(lambda: len(first.bodies) == 2)
            goes.cancel()
            await second.cancelled.wait()
            first.open.set()
            second.open.set()
            assert await answers(other) == [1]
            assert (first.ran + second.ran)[b"r1"] == 1
            assert router.is_at_rest()


@pytest.mark.parametrize(
    ("status", "retry_after"),
    [(503, None), (503, 1.0), (429, 1.0), (502, None), (404, None)],
)
async def test_a_pod_that_did_not_do_the_work_costs_no_request(
    tmp_path: Path, status: int, retry_after: float | None
) -> None:
    async with (
        fake_sidecar("a") as refuses, fake_sidecar("b") as takes,
        running_router(tmp_path, refuses, takes) as router,
    ):  # fmt: skip
        refuses.answer_with = lambda _request: refuse(status, retry_after)
        assert await answers(start(router, range(20))) == list(range(20))
        assert len(takes.bodies) == 20


@pytest.mark.parametrize("status", [400, 413, 415, 500, 504])
async def test_an_answer_that_another_pod_could_only_repeat_is_passed_on(
    tmp_path: Path, status: int
) -> None:
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path, first, second) as router,
    ):  # fmt: skip
        for pod in (first, second):
            pod.answer_with = lambda _request: refuse(status)
        answer = await router.infer()
        assert answer.status == status
        assert len(first.bodies) + len(second.bodies) == 1


async def test_full_queues_are_refused_at_once_with_the_time_to_come_back(tmp_path: Path) -> None:
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path, first, second) as router,
    ):  # fmt: skip
        for pod in (first, second):
            pod.telemetry = telemetry(backlog=20.0)
            pod.answer_with = lambda _request: refuse(429, 30.0)
        answer = await router.infer()
        assert (answer.status, answer.headers[names.RETRY_AFTER]) == (429, b"30")
        assert len(first.bodies) + len(second.bodies) == 2
        again = await router.infer()  # both have just said that they are full
        assert again.status == 429
        assert int(again.headers[names.RETRY_AFTER]) >= 1
        demand = (await router.state()).demand
    assert demand.rejected_rows_per_second == 2.0  # demand that scaling still sees
    assert demand.slo_attainment == 0.0


async def test_a_deadline_that_no_pod_can_keep_is_refused_before_any_pod_is_asked(
    tmp_path: Path,
) -> None:
    async with fake_sidecar("a") as pod:
        pod.telemetry = telemetry(backlog=50.0)
        async with running_router(tmp_path, pod) as router:
            answer = await router.infer(None, slimscale_deadline_ms="20")
            assert answer.status == 503
            assert int(answer.headers[names.RETRY_AFTER]) >= 49
            assert pod.got.empty()


async def test_an_early_refusal_by_the_only_pod_is_passed_on_early(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        pod.answer_with = lambda _request: refuse(503, 2.0)
        answer = await router.infer()
        assert (answer.status, answer.headers[names.RETRY_AFTER]) == (503, b"2")
        assert len(pod.bodies) == 1


async def test_while_every_pod_turns_requests_away_the_router_does_so_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = asyncio.get_running_loop().time
    now = clock()
    async with (
        fake_sidecar("a") as first,
        fake_sidecar("b") as second,
        running_router(tmp_path, first, second) as router,
    ):
        first.answer_with = second.answer_with = lambda _request: refuse(503, 2.0)
        monkeypatch.setattr(router.router.forwarder._loop, "time", lambda: now)  # a moment
        asked = await router.infer(slimscale_deadline_ms="300")
        assert asked.status == 503
        assert len(first.bodies) == len(second.bodies) == 1
        for left in ("300", "200"):
            answer = await router.infer(slimscale_deadline_ms=left)
            assert (answer.status, answer.headers[names.RETRY_AFTER]) == (503, b"1")
        assert len(first.bodies) == len(second.bodies) == 1
        await router.infer(slimscale_deadline_ms="400")  # has more time than was asked for
        assert len(first.bodies) + len(second.bodies) > 2
        before = len(first.bodies) + len(second.bodies)
        now = clock() + 1.0  # the moment is over
        await router.infer(slimscale_deadline_ms="200")
        assert len(first.bodies) + len(second.bodies) > before


async def test_one_pod_that_turns_requests_away_leaves_the_others_to_answer(
    tmp_path: Path,
) -> None:
    async with (
        fake_sidecar("a") as busy,
        fake_sidecar("b") as well,
        running_router(tmp_path, busy, well) as router,
    ):
        busy.answer_with = lambda _request: refuse(503, 2.0)
        while not busy.bodies:  # which of two equal pods is asked first is chance
            assert (await router.infer(slimscale_deadline_ms="300")).status == 200
        answers = [await router.infer(slimscale_deadline_ms="300") for _ in range(20)]
        assert [answer.status for answer in answers] == [200] * 20


async def test_retries_are_a_share_of_the_requests_once_the_savings_are_gone(
    tmp_path: Path,
) -> None:
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path, first, second) as router,
    ):  # fmt: skip
        for pod in (first, second):
            pod.answer_with = lambda _request: refuse(502)
        replies = await asyncio.gather(*start(router, range(400)))
        sent = len(first.bodies) + len(second.bodies)
    assert {reply.status for reply in replies} == {502}
    assert 400 <= sent <= 400 * 1.2 + 256


async def test_a_pod_that_drains_gets_nothing_more_and_finishes_what_it_has(tmp_path: Path) -> None:
    async with (
        fake_sidecar("a") as leaves, fake_sidecar("b") as stays,
        running_router(tmp_path, leaves, stays) as router,
    ):  # fmt: skip
        leaves.open.clear()
        stays.open.clear()
        tasks = start(router, range(10))
        await until_both_got(leaves, stays, 10)
        had = len(leaves.bodies)
        router.router.set_endpoints({"a": leaves.endpoint(ready=False), "b": stays.endpoint()})
        more = start(router, range(10, 20))
        await until(lambda: len(stays.bodies) == 20 - had)
        router.set_pods(stays)  # gone from the list with answers still to come
        leaves.open.set()
        stays.open.set()
        assert await answers(tasks + more) == list(range(20))
        assert len(leaves.bodies) == had


async def test_requests_wait_for_the_first_pod_and_scaling_sees_them(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path) as router:
        tasks = start(router, range(30))
        await until_held(router, 30)
        demand = (await router.state()).demand
        assert demand.buffered_rows == 30
        assert demand.stable_rows_per_second == 30.0
        assert (await router.metrics())["slimscale_router_buffered_requests"] == 30
        router.set_pods(pod)
        assert await answers(tasks) == list(range(30))
        assert (await router.state()).demand.buffered_requests == 0
        assert router.is_at_rest()


async def test_a_full_buffer_refuses_at_once_by_count_and_by_bytes(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, bufferRequests=3) as router:
        tasks = start(router, range(3))
        await until_held(router, 3)
        refused = await router.infer()
        assert refused.status == 503
        assert names.RETRY_AFTER in refused.headers
        router.set_config(router_config(bufferRequests=100, bufferBytes=350))
        assert (await router.infer()).status == 503
        metrics = await router.metrics()
        router.set_pods(pod)
        assert await answers(tasks) == [0, 1, 2]
    assert metrics['slimscale_router_rejected_total{reason="BufferFull"}'] == 1
    assert metrics['slimscale_router_rejected_total{reason="BufferBytes"}'] == 1


async def test_a_held_request_is_refused_at_its_own_deadline(tmp_path: Path) -> None:
    async with running_router(tmp_path) as router:
        answer = await router.infer(None, slimscale_deadline_ms="30")
        assert answer.status == 503
        assert "no pod was there" in json.loads(answer.body)["error"]
        assert router.is_at_rest()


async def test_a_held_request_whose_client_has_gone_leaves_the_buffer(tmp_path: Path) -> None:
    async with running_router(tmp_path) as router:
        task = start(router, range(1))[0]
        await until_held(router, 1)
        task.cancel()
        await until_held(router, 0)
        assert router.is_at_rest()


async def test_without_a_buffer_no_pod_means_an_answer_at_once(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, bufferRequests=0) as router:
        router.router.set_endpoints({"a": pod.endpoint(ready=False)})
        assert (await router.infer()).status == 503
        assert (await router.ask("GET", "/v2/health/ready")).status == 503
        assert pod.got.empty()


async def test_held_requests_reach_a_small_pod_a_few_at_a_time(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, maxBatchRows=4) as router:
        pod.queue_limit = 8
        tasks = start(router, range(60))
        await until_held(router, 60)
        router.set_pods(pod)
        assert await answers(tasks) == list(range(60))
        assert pod.refusals <= 20  # all at once: 52 and more


async def test_a_policy_swap_under_load_drops_nothing(tmp_path: Path) -> None:
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path, first, second) as router,
    ):  # fmt: skip
        for index, policy in enumerate(["Random", "SED", "Mixture", "RoundRobin", "ColdAwareSED"]):
            for pod in (first, second):
                pod.open.clear()
            batch = start(router, range(20 * index, 20 * index + 20))
            await until_both_got(first, second, 20 * (index + 1))
            router.set_config(router_config(policy=policy))
            for pod in (first, second):
                pod.open.set()
            assert await answers(batch) == list(range(20 * index, 20 * index + 20))
            assert (await router.state()).policy == policy
        used = {one.policy for one in (await router.state()).decisions}
    assert "RoundRobin" in used


@pytest.mark.parametrize(
    "bad",
    ["", "{", '{"service": "digits"}', json.dumps(router_config(policy="Oracle"))],
    ids=["empty", "cut off", "fields missing", "unknown policy"],
)
async def test_a_bad_configuration_keeps_the_last_good_one_and_says_why(
    tmp_path: Path, bad: str
) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod, policy="SED") as router:
        router.set_config(bad)
        assert (await router.infer()).status == 200
        state = await router.state()
        assert state.policy == "SED"
        assert state.config_error
        assert (await router.metrics())["slimscale_router_config_ok"] == 0
        router.set_config(router_config(policy="Random"))
        state = await router.state()
        assert (state.policy, state.config_error) == ("Random", None)


async def test_shadow_mode_acts_by_sed_and_counts_what_the_other_would_do(tmp_path: Path) -> None:
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path, first, second, policy="Random", mode="Shadow") as router,
    ):  # fmt: skip
        for number in range(40):
            await router.infer(body_of(number))
        state = await router.state()
        metrics = await router.metrics()
    assert {one.policy for one in state.decisions} == {"SED"}
    assert first.models + second.models == Counter({"m-w100": 40})
    shadow = {
        name: value
        for name, value in metrics.items()
        if name.startswith("slimscale_router_shadow_decisions_total")
    }
    assert sum(shadow.values()) == 40
    assert any('difference="pod_and_width"' in name for name in shadow)
    delay = 'slimscale_router_shadow_expected_seconds_total{route="%s"}'
    assert metrics[delay % "acting"] > 0
    assert metrics[delay % "shadow"] > 0


async def test_pods_without_telemetry_share_the_load(tmp_path: Path) -> None:
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path) as router,
    ):  # fmt: skip
        for pod in (first, second):
            pod.telemetry = None
            pod.open.clear()
        router.set_pods(first, second)
        tasks = start(router, range(40))
        await until_both_got(first, second, 40)
        assert min(len(first.bodies), len(second.bodies)) >= 15
        for pod in (first, second):
            pod.open.set()
        assert await answers(tasks) == list(range(40))


async def test_telemetry_that_makes_no_sense_is_skipped(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        pod.telemetry = PodTelemetry(widths=(), backlog_seconds=float("nan"))
        assert (await router.infer()).status == 200
        assert (await router.infer()).status == 200
        assert (await router.state()).pods[0].telemetry == telemetry()


async def test_a_pod_that_keeps_failing_is_left_alone_and_seen_in_the_state(
    tmp_path: Path,
) -> None:
    async with fake_sidecar("a") as ill, fake_sidecar("b") as well:
        ill.telemetry = well.telemetry = telemetry(base=0.2)
        async with running_router(tmp_path, ill, well, ejectSeconds=600) as router:
            ill.answer_with = lambda _request: refuse(502)
            for number in range(30):
                assert (await router.infer(body_of(number))).status == 200
            seen = len(ill.bodies)
            state = await router.state()
            assert {pod.name: pod.ejected for pod in state.pods} == {"a": True, "b": False}
            assert await answers(start(router, range(20))) == list(range(20))
            assert len(ill.bodies) == seen == 3
            metrics = await router.metrics()
    assert metrics['slimscale_router_ejections_total{reason="ConsecutiveFailures"}'] == 1


async def test_a_router_that_ends_answers_what_it_has_and_is_not_ready(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod) as router:
        pod.open.clear()
        tasks = start(router, range(10))
        await until_got(pod, 10)
        assert (await router.status("/readyz")).status == 200
        port = router.router.server.port
        stopping = asyncio.create_task(router.router.stop())
        await until_ready_is_taken_back(router)
        pod.open.set()
        assert await answers(tasks) == list(range(10))
        await stopping
        with pytest.raises(ExchangeFailed):
            await router.client.request(b"GET", "127.0.0.1", port, b"/v2", timeout_seconds=5)


async def test_thousands_of_requests_of_every_fate_leave_nothing_behind(tmp_path: Path) -> None:
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path, first, second) as router,
    ):  # fmt: skip
        fates = [None, refuse(429, 1.0), None, refuse(500), None, refuse(503), None, refuse(400)]

        def fate(request: Request) -> Response | None:
            number = int(json.loads(request.body)["inputs"][0]["data"][0])
            chosen = fates[number % len(fates)]
            return chosen and Response(chosen.status, chosen.body, chosen.headers)

        first.answer_with = fate
        for turn in range(5):
            tasks = start(router, range(turn * 100, turn * 100 + 100))
            for task in tasks[::10]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await until(router.is_at_rest)
        for pod in router.router.pods:
            assert not pod._uncounted  # the bookkeeping of each request has gone with it
