"""A program that goes to and fro between phases: the second time its thread count is known."""

import pytest

from slimscale.domain.decision import Decision
from slimscale.threads.closed_network import NetworkParameters
from slimscale.threads.decide import decide
from slimscale.threads.memo import KnownLoad, Memo, load_memo
from slimscale.threads.recall import Signature, recall
from tests.support.observations import SyntheticWorkload, drive, make_spec

COMPUTING = NetworkParameters(0.0, 20e-3, 60e-6, 2.0, contention_linear=0.2)
WAITING = NetworkParameters(20e-3, 1e-3, 60e-6, 2.0, contention_linear=0.2)
MINUTE = 12
KNOWN = Memo(loads=(KnownLoad(40, 1e-3, 20e-3, 2.0, 900.0), KnownLoad(2, 20e-3, 0.0, 2.0, 100.0)))


def test_a_load_that_returns_gets_its_thread_count_in_one_step() -> None:
    plant = SyntheticWorkload(COMPUTING, threads=2, noise=0.03)
    spec = make_spec(cpu={"limitPolicy": "Keep"})
    memo: dict[str, object] = {}
    settled: list[int] = []
    recalled: list[Decision] = []
    for phase in (COMPUTING, WAITING, COMPUTING, WAITING):
        plant.truth = phase

        def note(decision: Decision) -> None:
            if any(step.stage == "Recall" for step in decision.steps):
                recalled.append(decision)

        memo = drive(plant, spec, 5 * MINUTE, memo=memo, decide=decide, each=note)
        settled.append(plant.threads)
    assert len(recalled) == 2
    assert [d.target.threads for d in recalled if d.target] == settled[:2]
    assert abs(settled[3] - settled[1]) <= 0.3 * settled[1]
    assert load_memo(memo)[1] == ""


@pytest.mark.parametrize(
    ("signature", "threads"),
    [
        (Signature(1.1e-3, 21e-3, 2.0), 40),
        (Signature(20e-3, 1e-3, 2.0), 2),
        (Signature(2e-3, 20e-3, 2.0), None),
        (Signature(1e-3, 60e-3, 2.0), None),
        (Signature(1e-3, 20e-3, 1.0), None),
    ],
    ids=["same waits", "same computing", "twice the CPU", "longer waits", "another CPU limit"],
)
def test_only_a_load_whose_tasks_cost_the_same_on_the_same_cpu_is_known(
    signature: Signature, threads: int | None
) -> None:
    found = recall(KNOWN, signature)
    assert (found.threads if found else None) == threads


def test_known_loads_outlive_the_operator() -> None:
    assert load_memo(KNOWN.to_json()) == (KNOWN, "")
