"""A learned policy in the router: taken up from its file, shielded, tried in shadow, told about."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from slimscale.routing.decision_records import Segment, decode_segment
from slimscale.routing.rollout import Stage, falls_in_canary
from slimscale.serving import headers as names
from tests.support.fake_sidecar import body_of, fake_sidecar
from tests.support.learned_policies import Obedient, write_policy
from tests.support.routers import RouterUnderTest, router_config, running_router

pytestmark = pytest.mark.component

PPO: dict[str, Any] = {"policy": "PPO", "policyFromConfigMap": True}


async def send(router: RouterUnderTest, number: int) -> None:
    for index in range(number):
        assert (await router.infer(body_of(index))).status == 200


def policies(state: Any) -> Counter[str]:
    return Counter(one.policy for one in state.decisions)


async def test_a_good_file_is_there_at_the_start_and_its_policy_acts(tmp_path: Path) -> None:
    write_policy(tmp_path, pod="b", version="7")
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path, first, second, **PPO) as router,
    ):  # fmt: skip
        await send(router, 20)
        state, metrics = await router.state(), await router.metrics()
        learned = router.router.forwarder.live.learned
    assert isinstance(learned, Obedient)
    assert len(learned.arrivals) == len(learned.ends) == 20
    assert set(learned.slowdowns()) == {
        "a",
        "b",
    }  # how late its answers are is the router's to tell
    assert first.models == {}
    assert second.models == {"m-w025": 20}
    assert {one.reason for one in state.decisions} == {"Learned"}
    candidate = state.candidate
    assert candidate is not None
    assert (candidate.acting, candidate.stage, candidate.version) == ("PPO", "Active", "7")
    assert candidate.error is None
    assert candidate.overruled_share == 0.0
    assert metrics['slimscale_router_shield_total{verdict="Stood"}'] >= 20
    assert metrics['slimscale_router_policy_stage{name="Active"}'] == 1
    assert metrics["slimscale_router_policy_ok"] == 1
    ended = 'slimscale_router_candidate_requests_total{arm="candidate",result="met"}'
    assert metrics[ended] == 20
    assert metrics['slimscale_router_shadow_compared_total{route="acting"}'] == 1  # of 64


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ({"data": b"NaN"}, "the weights are no numbers; train again"),
        ({"sha256": "0" * 64}, "they do not belong together, or one is damaged"),
        ({"data": b"fine" + bytes(1_000_001)}, "over 1000000 bytes together"),
        ({"width": 99}, "cannot be tried"),
    ],
    ids=["weights", "another card", "too large", "fails when made"],
)
async def test_a_bad_file_keeps_the_last_good_policy_and_says_what_to_do(
    tmp_path: Path, damage: dict[str, Any], says: str
) -> None:
    write_policy(tmp_path, pod="a", version="1")
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod, **PPO) as router:
        write_policy(tmp_path, **({"pod": "a", "version": "2"} | damage))
        router.router.poll_config()
        router.router.poll_config()
        await send(router, 3)
        state, metrics = await router.state(), await router.metrics()
        assert state.candidate is not None
        assert says in (state.candidate.error or "")
        assert "policy 1 stays in use" in (state.candidate.error or "")
        assert (state.candidate.version, state.candidate.stage) == ("1", "Active")
        assert metrics["slimscale_router_policy_ok"] == 0
        assert metrics["slimscale_router_policy_failures"] == 1
        write_policy(tmp_path, pod="a", version="3")
        router.router.poll_config()
        state = await router.state()
        assert state.candidate is not None
        assert (state.candidate.version, state.candidate.error) == ("3", None)
    assert policies(state) == {"PPO": 3}


@pytest.mark.parametrize("card", ["", "[1]", "[" * 100_000, '"x"'])
async def test_with_no_good_file_the_heuristic_answers(tmp_path: Path, card: str) -> None:
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "policy.safetensors").write_bytes(b"fine")
    (folder / "policy.json").write_text(card, encoding="utf-8")
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod, **PPO) as router:
        await send(router, 5)
        state = await router.state()
    assert state.candidate is not None
    assert state.candidate.acting == "ColdAwareSED"
    assert state.candidate.stage == ""
    assert "policy.json is no JSON object" in (state.candidate.error or "")
    assert "the heuristic answers" in (state.candidate.error or "")
    assert policies(state) == {"ColdAwareSED": 5}


async def test_a_file_that_is_missing_names_the_config_map(tmp_path: Path) -> None:
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod, **PPO) as router:
        candidate = (await router.state()).candidate
    assert candidate is not None
    assert "routing.learned.policyConfigMap" in (candidate.error or "")


async def test_a_new_file_starts_in_shadow_and_no_request_is_dropped(tmp_path: Path) -> None:
    write_policy(tmp_path, pod="a", version="1")
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(tmp_path, first, second, **PPO) as router,
    ):  # fmt: skip
        await send(router, 3)
        write_policy(tmp_path, pod="b", version="2")
        router.router.poll_config()
        await send(router, 10)
        state, metrics = await router.state(), await router.metrics()
        rollout = router.router.forwarder.live.rollout
    assert rollout is not None
    assert rollout.shadowed == 10
    assert state.candidate is not None
    assert (state.candidate.stage, state.candidate.reason) == ("Shadow", "NewPolicy")
    assert policies(state) == {"PPO": 3, "ColdAwareSED": 10}
    assert metrics["slimscale_router_policy_loads"] == 2


async def test_a_canary_gets_the_requests_whose_ids_fall_to_it(tmp_path: Path) -> None:
    write_policy(tmp_path, pod="b")
    async with (
        fake_sidecar("a") as first, fake_sidecar("b") as second,
        running_router(
            tmp_path, first, second, **PPO, mode="Canary", canaryPercent=30
        ) as router,
    ):  # fmt: skip
        ids = [f"r{number}" for number in range(30)]
        for one in ids:
            await router.infer(body_of(1, request_id=one))
        state = await router.state()
        live = router.router.forwarder.live
    mine = sum(falls_in_canary(one.encode(), 0.3) for one in ids)
    assert 0 < mine < 30
    assert policies(state) == {"PPO": mine, "ColdAwareSED": 30 - mine}
    assert live.rollout is not None
    assert (live.rollout.candidate.ended, live.rollout.incumbent.ended) == (mine, 30 - mine)


async def test_a_burning_slo_gives_the_requests_back_to_the_heuristic(tmp_path: Path) -> None:
    write_policy(tmp_path, pod="a")
    async with (
        fake_sidecar("a") as pod,
        running_router(tmp_path, pod, **PPO, sloMilliseconds=60_000) as router,
    ):
        live = router.router.forwarder.live
        assert live.rollout is not None
        for second in range(60):
            for _ in range(50):
                live.rollout.candidate.end(met=False)
            live.rollout.tick(live.rollout.since + second)
        await send(router, 4)
        state = await router.state()
        router.set_config(router_config(**PPO, sloMilliseconds=50_000))  # not a fresh start
        assert router.router.forwarder.live.rollout is live.rollout
    assert state.candidate is not None
    assert (state.candidate.stage, state.candidate.reason) == (Stage.SHADOW, "SloBurn")
    assert "missed their SLO" in state.candidate.words
    assert state.candidate.acting == "ColdAwareSED"
    assert policies(state) == {"ColdAwareSED": 4}


@pytest.mark.parametrize("pod", ["raise", "gone"])
async def test_whatever_the_policy_does_requests_are_answered(tmp_path: Path, pod: str) -> None:
    write_policy(tmp_path, pod=pod)
    async with fake_sidecar("a") as sidecar, running_router(tmp_path, sidecar, **PPO) as router:
        await send(router, 5)
        state, metrics = await router.state(), await router.metrics()
    assert state.candidate is not None
    assert state.candidate.overruled_share == 1.0
    verdict = "NoChoice" if pod == "raise" else "UnhealthyPod"
    assert metrics[f'slimscale_router_shield_total{{verdict="{verdict}"}}'] == 5


async def test_a_hold_goes_to_the_pod_cut_to_what_the_slo_leaves(tmp_path: Path) -> None:
    write_policy(tmp_path, pod="a", hold=0.05)
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod, **PPO) as router:
        await send(router, 1)
        await router.infer(body_of(1), slimscale_slo="30")
        held = [(await pod.got.get()).headers.get(names.HOLD_MILLISECONDS) for _ in range(2)]
        router.set_config(router_config(policy="SED"))
        await send(router, 1)
        free = (await pod.got.get()).headers
    assert held[0] == b"50"
    assert 0 < int(held[1] or b"0") < 30
    assert names.HOLD_MILLISECONDS not in free


LOG: dict[str, Any] = {"decisionLog": {"samplePercent": 100}}


async def logged(router: RouterUnderTest) -> tuple[dict[str, Any], list[Segment]]:
    index = json.loads((await router.status("/decisions")).body)
    segments = []
    for one in index["segments"]:
        answer = await router.status(f"/decisions?segment={one['segment']}")
        assert answer.status == 200
        segments.append(decode_segment(answer.body))
        assert len(segments[-1].records) == one["decisions"]
    return index, segments


async def test_decisions_and_their_ends_can_be_read_and_hold_nothing_of_a_request(
    tmp_path: Path,
) -> None:
    write_policy(tmp_path, pod="a", version="9")
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod, **PPO, **LOG) as router:
        for number in range(3):
            await router.infer(body_of(number, request_id="user-text"))
        await router.infer(body_of(1), slimscale_slo="1")
        index, segments = await logged(router)
        raw = [
            (await router.status(f"/decisions?segment={one['segment']}")).body
            for one in index["segments"]
        ]
        metrics = await router.metrics()
    assert (index["format"], index["version"], index["policy"]) == ("slimscale-decisions", "1", "9")
    records = [record for segment in segments for record in segment.records]
    assert len(records) == 4
    assert metrics["slimscale_router_decision_log_decisions"] == 4
    assert all(record.answered and record.sends == 1 for record in records)
    assert [record.met for record in records[:3]] == [True] * 3
    assert [record.acted for record in records] == [True] * 3 + [False]  # no pod takes 1 ms
    assert records[0].done == records[0].proposed == (0, 0, 3, 0)
    assert records[0].log_probability == -0.25
    assert records[0].latency_seconds > 0
    assert segments[0].facts["models"].split(",")[0] == "m-w025"
    assert not any(b"user-text" in data for data in raw)


async def test_in_shadow_the_log_has_what_was_done_beside_what_would_have_been(
    tmp_path: Path,
) -> None:
    write_policy(tmp_path, pod="a")
    async with (
        fake_sidecar("a") as pod,
        running_router(tmp_path, pod, **PPO, **LOG, mode="Shadow") as router,
    ):
        await send(router, 2)
        _, segments = await logged(router)
    [record] = segments[0].records[:1]
    assert not record.acted
    assert record.proposed == (0, 0, 3, 0)
    assert record.done[:2] == (0, 3)  # the heuristic takes the widest


async def test_the_log_is_off_by_default_and_bounded_when_on(tmp_path: Path) -> None:
    write_policy(tmp_path, pod="a")
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod, **PPO) as router:
        await send(router, 1)
        off = await router.status("/decisions")
        assert off.status == 404
        assert b"routing.decisionLog.samplePercent" in off.body
        small = {"samplePercent": 100, "maxBytes": 2**16}
        router.set_config(router_config(**PPO, decisionLog=small))
        await send(router, 400)
        log = router.router.forwarder.live.log
        assert log is not None
        assert log.stored_bytes <= 2**16 + 2**14
        assert 20 < log.decisions < 400
        gone = await router.status("/decisions?segment=0")
        odd = await router.status("/decisions?segment=../../etc")
    assert (gone.status, odd.status) == (404, 404)


async def test_new_weights_of_the_objective_reach_the_policy_and_keep_its_stage(
    tmp_path: Path,
) -> None:
    write_policy(tmp_path, pod="a")
    async with fake_sidecar("a") as pod, running_router(tmp_path, pod, **PPO) as router:
        before = router.router.forwarder.live
        router.set_config(router_config(**PPO, objective={"energy": 5}))
        after = router.router.forwarder.live
    assert after.rollout is before.rollout
    assert isinstance(after.learned, Obedient)
    assert after.learned.objective.energy == 5
    assert json.loads(after.config.model_dump_json())["objective"]["energy"] == 5
