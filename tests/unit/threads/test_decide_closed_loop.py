"""`decide` drives a synthetic plant: what a user would see over minutes and hours."""

import pytest

from slimscale.domain.decision import Action, Decision
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from tests.support.observations import SyntheticWorkload, drive, make_spec

LIGHT = NetworkParameters(0.0, 20e-6, 60e-6, 2.0, contention_linear=0.7)
HEAVY = NetworkParameters(0.0, 20e-3, 60e-6, 2.0, contention_linear=0.7)
BLOCKING = NetworkParameters(20e-3, 2e-3, 60e-6, 2.0, contention_linear=0.7)

MINUTE = 12  # ticks of 5 s


def _regret(plant: SyntheticWorkload, limit_millicores: int | None) -> float:
    reached = plant.rate(plant.threads, plant.limit_millicores)
    return 1 - reached / plant.best_rate(limit_millicores)


@pytest.mark.parametrize("policy", ["Headroom", "Keep"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_phase_is_followed_within_half_a_minute_to_near_its_best(
    policy: str, seed: int
) -> None:
    plant = SyntheticWorkload(LIGHT, threads=16, noise=0.05, seed=seed)
    spec = make_spec(cpu={"limitPolicy": policy})
    most = 2000 if policy == "Keep" else 4000
    memo: dict[str, object] = {}
    for phase in (LIGHT, HEAVY, BLOCKING, LIGHT):
        plant.truth = phase
        first_change: list[float] = []
        started = plant.now_seconds

        def note(
            decision: Decision, since: float = started, seen: list[float] = first_change
        ) -> None:
            if decision.action in (Action.SCALE_UP, Action.SCALE_DOWN):
                seen.append(decision.decided_at_seconds - since)

        memo = drive(plant, spec, 2 * MINUTE, memo=memo, decide=decide, each=note)
        assert first_change, phase
        assert first_change[0] <= 30
        assert _regret(plant, most) <= 0.05, (phase, plant.threads, plant.limit_millicores)


def test_light_tasks_get_one_thread_and_give_their_cpu_back() -> None:
    plant = SyntheticWorkload(LIGHT, threads=16, noise=0.05)
    drive(plant, make_spec(), MINUTE, decide=decide)
    assert plant.threads == 1
    assert plant.limit_millicores is not None
    assert 1000 <= plant.limit_millicores <= 1500  # one busy thread and a fifth of headroom


@pytest.mark.parametrize(
    ("quota", "expected"), [(500, {1, 2}), (1000, {1, 2}), (2000, {2, 3}), (3500, {3, 4, 5})]
)
def test_computing_tasks_get_about_the_quotas_cores(quota: int, expected: set[int]) -> None:
    plant = SyntheticWorkload(HEAVY, threads=16, limit_millicores=quota, noise=0.02)
    drive(plant, make_spec(cpu={"limitPolicy": "Keep"}), 2 * MINUTE, decide=decide)
    assert plant.threads in expected


def test_waiting_tasks_get_tens_of_threads_where_floor_of_quota_gives_one() -> None:
    plant = SyntheticWorkload(
        NetworkParameters(20e-3, 1e-3, 60e-6, 1.0, 0.7),
        threads=1,
        limit_millicores=1000,
        noise=0.05,
    )
    before = plant.rate(1, 1000)
    drive(plant, make_spec(cpu={"limitPolicy": "Keep"}), 2 * MINUTE, decide=decide)
    assert plant.threads >= 15
    assert plant.rate(plant.threads, 1000) >= 10 * before


@pytest.mark.parametrize("phase", [LIGHT, HEAVY, BLOCKING])
def test_an_hour_of_steady_noisy_load_changes_nothing_after_the_first_minutes(
    phase: NetworkParameters,
) -> None:
    plant = SyntheticWorkload(
        phase, threads=8, noise=0.10, seed=5, interval_seconds=15.0, horizon_seconds=180.0
    )
    spec = make_spec(
        cpu={"limitPolicy": "Keep"},
        metrics={"intervalSeconds": 15},
        tuning={"windowSeconds": 45, "minDwellSeconds": 60},
    )
    memo = drive(plant, spec, 20, decide=decide)
    actions: list[Action] = []
    drive(plant, spec, 220, memo=memo, decide=decide, each=lambda d: actions.append(d.action))
    assert [a for a in actions if a is not Action.NO_CHANGE] == []


def test_under_headroom_minutes_of_noise_moves_no_cpu() -> None:
    plant = SyntheticWorkload(BLOCKING, threads=8, noise=0.10, seed=7)
    memo = drive(plant, make_spec(), 3 * MINUTE, decide=decide)
    limits: set[int | None] = set()
    drive(
        plant,
        make_spec(),
        5 * MINUTE,
        memo=memo,
        decide=decide,
        each=lambda d: limits.add(d.target.cpu_limit_millicores if d.target else None),
    )
    assert len(limits) == 1


@pytest.mark.parametrize("threads", [1, 16])
def test_a_hidden_serial_section_does_not_run_away_to_the_most_threads(threads: int) -> None:
    plant = SyntheticWorkload(
        NetworkParameters(0.0, 5e-3, 60e-6, 2.0, contention_linear=0.1),
        threads=threads,
        serial_seconds=4.9e-3,
        noise=0.03,
    )
    tried: list[int] = []
    drive(
        plant,
        make_spec(),
        5 * MINUTE,
        decide=decide,
        each=lambda d: tried.append(d.target.threads if d.target else 0),
    )
    assert plant.threads <= 2
    assert set(tried[-MINUTE:]) == {plant.threads}


def test_a_cliff_is_left_at_once_and_not_tried_again_under_the_same_load() -> None:
    plant = SyntheticWorkload(BLOCKING, threads=16, cliff_above=30, noise=0.03)
    start = plant.rate(16, 2000)
    over_the_cliff: list[float] = []
    reverted: list[Decision] = []

    def note(decision: Decision) -> None:
        if plant.threads > 30:
            over_the_cliff.append(decision.decided_at_seconds)
        if decision.action is Action.REVERT:
            reverted.append(decision)

    memo = drive(plant, make_spec(), 10 * MINUTE, decide=decide, each=note)
    assert reverted
    assert reverted[0].reason == "Reverted"
    assert len(over_the_cliff) <= 4
    assert 16 <= plant.threads <= 30
    assert plant.rate(plant.threads, plant.limit_millicores) >= start
    drive(plant, make_spec(), 5 * MINUTE, memo=memo, decide=decide, each=note)
    assert len(over_the_cliff) <= 4


def test_after_a_change_of_load_what_the_old_load_refused_is_allowed_again() -> None:
    plant = SyntheticWorkload(BLOCKING, threads=16, cliff_above=30, noise=0.03)
    memo = drive(plant, make_spec(), 5 * MINUTE, decide=decide)
    assert plant.threads <= 30
    plant.cliff_above = None
    plant.truth = NetworkParameters(60e-3, 2e-3, 60e-6, 2.0, contention_linear=0.7)
    drive(plant, make_spec(threads={"max": 128}), 2 * MINUTE, memo=memo, decide=decide)
    assert plant.threads > 40


def test_cpu_saved_never_costs_throughput_beyond_the_tolerance() -> None:
    plant = SyntheticWorkload(
        NetworkParameters(20e-3, 1e-3, 60e-6, 4.0, 0.7),
        threads=8,
        limit_millicores=4000,
        request_millicores=2000,
        noise=0.05,
    )
    drive(plant, make_spec(threads={"max": 16}), 5 * MINUTE, decide=decide)
    assert plant.limit_millicores is not None
    assert plant.limit_millicores <= 1500
    assert plant.rate(plant.threads, plant.limit_millicores) >= 0.95 * plant.best_rate(
        4000, most=16
    )


def test_an_operator_restart_keeps_what_was_learned() -> None:
    spec = make_spec(cpu={"limitPolicy": "Keep"})
    plant = SyntheticWorkload(BLOCKING, threads=4, noise=0.05)
    memo = drive(plant, spec, 2 * MINUTE, decide=decide)
    threads = plant.threads
    plant.tick()
    kept = decide(observation=plant.observe(), spec=spec, memo=memo, now_seconds=plant.now_seconds)
    assert kept.target is not None
    assert kept.target.threads == threads
    assert kept.action is Action.NO_CHANGE
