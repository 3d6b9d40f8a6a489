"""Second and third tier: what the model has wrong is found by small steps that are measured."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from slimscale.domain.decision import Action, Decision
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from slimscale.threads.estimate import Estimate
from slimscale.threads.memo import load_memo
from slimscale.threads.predictor import Surface
from slimscale.threads.probe import MOST_PROBES
from tests.support.observations import SyntheticWorkload, drive, make_spec

BLOCKING = NetworkParameters(20e-3, 1e-3, 60e-6, 2.0, contention_linear=0.3)
CROWDING = NetworkParameters(0.0, 2e-3, 400e-6, 2.0, contention_linear=0.9)
HEAVY = NetworkParameters(0.0, 20e-3, 60e-6, 2.0, contention_linear=0.7)
MINUTE = 12


@dataclass(frozen=True, slots=True)
class Stubborn:
    """A predictor that always wants one count, whatever it is shown."""

    threads: int
    name: str = "stubborn"

    def surface(
        self, estimate: Estimate, *, cpu_cores: tuple[float, ...], max_threads: int
    ) -> Surface:
        rates = np.full((len(cpu_cores), max_threads), 0.97 * estimate.tasks_per_second)
        if max_threads >= self.threads:
            rates[:, self.threads - 1] = estimate.tasks_per_second * 1.01
        return Surface(cpu_cores, rates, estimate.cpu_seconds_a_task)


def _run(
    truth: NetworkParameters,
    *,
    wrong: int,
    minutes: int = 6,
    tuning: dict[str, object] | None = None,
    mode: str = "InPlace",
) -> tuple[SyntheticWorkload, list[Decision]]:
    plant = SyntheticWorkload(truth, threads=wrong, noise=0.03)
    spec = make_spec(cpu={"limitPolicy": "Keep"}, tuning=tuning or {}, updatePolicy={"mode": mode})
    seen: list[Decision] = []

    def with_stubborn(**given: object) -> Decision:
        return decide(**given, predictor=Stubborn(wrong))  # type: ignore[arg-type]

    drive(plant, spec, minutes * MINUTE, decide=with_stubborn, each=seen.append)
    return plant, seen


def _share_of_best(plant: SyntheticWorkload) -> float:
    return plant.rate(plant.threads, 2000) / plant.best_rate(2000)


def test_idle_cpu_beside_waiting_work_finds_the_threads_that_the_model_does_not_ask_for() -> None:
    plant, _ = _run(BLOCKING, wrong=4)
    assert _share_of_best(plant) >= 0.9


def test_threads_in_each_others_way_are_taken_out_though_the_model_wants_them() -> None:
    plant, _ = _run(CROWDING, wrong=16)
    assert plant.threads <= 6
    assert _share_of_best(plant) >= 0.9


@pytest.mark.parametrize("truth", [BLOCKING, CROWDING])
def test_with_both_tiers_off_nothing_is_tried(truth: NetworkParameters) -> None:
    wrong = 4 if truth is BLOCKING else 16
    plant, _ = _run(truth, wrong=wrong, tuning={"cpuAware": False, "search": False})
    assert plant.threads == wrong


def test_a_recommendation_only_workload_is_never_probed() -> None:
    plant, seen = _run(BLOCKING, wrong=4, mode="Off")
    assert plant.threads == 4
    assert not [step for d in seen for step in d.steps if step.stage == "Probe"]


def test_pods_that_a_change_would_restart_are_never_probed() -> None:
    plant, seen = _run(CROWDING, wrong=16, mode="Rollout")
    assert plant.threads == 16
    assert not [step for d in seen for step in d.steps if step.stage == "Probe"]


def test_at_most_five_steps_are_tried_for_one_load_and_then_it_stays() -> None:
    _, seen = _run(BLOCKING, wrong=2, minutes=20)
    probes = [step for d in seen for step in d.steps if step.stage == "Probe"]
    assert 1 <= len(probes) <= MOST_PROBES
    moved = [d for d in seen[-10 * MINUTE :] if d.action is not Action.NO_CHANGE]
    assert moved == []


def test_a_step_that_does_not_pay_is_taken_back_within_a_window_and_not_repeated() -> None:
    plant = SyntheticWorkload(HEAVY, threads=2, noise=0.02, schedstat=False, cliff_above=2)
    spec = make_spec(cpu={"limitPolicy": "Keep"})
    threads: list[int] = []
    drive(plant, spec, 20 * MINUTE, decide=decide, each=lambda _: threads.append(plant.threads))
    above = [i for i, k in enumerate(threads) if k > 2]
    assert plant.threads == 2
    assert len(above) <= 4  # one window and the way back


def test_a_change_of_load_opens_the_search_again() -> None:
    plant, seen = _run(BLOCKING, wrong=4)
    memo, problem = load_memo(seen[-1].memo)
    assert problem == ""
    assert memo.regime.probes > 0
    plant.truth = replace(HEAVY, cpu_seconds=5e-3)
    after = drive(plant, make_spec(cpu={"limitPolicy": "Keep"}), MINUTE, memo=seen[-1].memo,
                  decide=decide)  # fmt: skip
    again, _ = load_memo(after)
    assert again.regime.number > memo.regime.number
    assert again.regime.probes < memo.regime.probes  # counted anew


def test_the_decision_names_the_tier_that_chose_its_target() -> None:
    _, seen = _run(BLOCKING, wrong=4, minutes=3)
    tiers = [d.tier for d in seen if d.target is not None]
    assert tiers[0] == "Predict"
    assert "CpuAware" in tiers
