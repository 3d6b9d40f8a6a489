"""From cells to medians, ratios, verdicts and the page."""

from dataclasses import replace
from pathlib import Path

import pytest

from slimscale.bench.serving.judge import judge
from slimscale.bench.serving.loadgen.job import Answered
from slimscale.bench.serving.neutral import Verdict
from slimscale.bench.serving.plan import Load, Plan, groups_of
from slimscale.bench.serving.records import Cell, Journal, quantiles_of
from slimscale.bench.serving.report import write_report
from slimscale.bench.serving.summary import Summary, summarise

USUAL = Cell(
    system="direct",
    load="closed 1",
    repetition=0,
    offered_per_second=0.0,
    per_second=100.0,
    p50=4.0,
    p99=10.0,
    p999=11.0,
    timed=100,
    right=100,
    wrong=0,
    refused=0,
    failed=0,
    lost=0,
    unanswered=0,
    first_wrong="",
    cpu_micros={"model": 3000.0},
    client_cpu_micros=50.0,
    late_start_p99=0.1,
    others_cores=0.1,
    steal_cores=0.0,
    load_average=1.0,
    at="2026-01-01T00:00:00+00:00",
)


def cell(system: str, load: str = "closed 1", **changes: object) -> Cell:
    return replace(USUAL, system=system, load=load, **changes)  # type: ignore[arg-type]


def summary(*cells: Cell) -> Summary:
    return summarise(
        cells,
        systems=list(dict.fromkeys(c.system for c in cells)),
        loads=list(dict.fromkeys(c.load for c in cells)),
    )


def claim(cells: list[Cell], part: str) -> tuple[bool | None, str]:
    found = [c for c in judge(summary(*cells), target_milliseconds=100.0) if part in c.text]
    assert found, part
    return found[0].reached, found[0].measured


def test_ratios_compare_cells_of_the_same_repetition_alone() -> None:
    cells = [cell("direct", repetition=r, per_second=v) for r, v in enumerate((100.0, 10.0, 50.0))]
    cells += [cell("slimscale", repetition=r, per_second=v) for r, v in enumerate((200.0, 20.0))]
    ratio = summary(*cells).ratio("slimscale", "direct", "closed 1", "per_second")
    assert ratio is not None
    assert (ratio.value, ratio.least, ratio.most, ratio.count) == (2.0, 2.0, 2.0, 2)


def test_one_load_behind_one_peer_is_said_and_not_reached() -> None:
    cells = [cell("slimscale", load, p99=10.0) for load in ("closed 1", "closed 8")]
    cells += [cell("window-50ms", load, p99=60.0) for load in ("closed 1", "closed 8")]
    assert claim(cells, "Closed loops: p99") == (True, "at all 2 loads")
    cells += [cell("ray", "closed 8", p99=9.0)]
    reached, said = claim(cells, "Closed loops: p99")
    assert reached is False
    assert said == "behind at closed 8: 10 to 9 of ray"


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    reached, said = claim([cell("direct")], "p50 at one client")
    assert (reached, said) == (None, "not measured")


@pytest.mark.parametrize(("p50", "reached"), [(4.5, True), (4.7, False)])
def test_the_median_at_one_client_is_held_against_direct(p50: float, reached: bool) -> None:
    assert claim([cell("direct"), cell("slimscale", p50=p50)], "p50 at one client")[0] is reached


@pytest.mark.parametrize(("rate", "reached"), [(600.0, True), (599.0, False)])
def test_sixty_four_clients_must_bring_six_times_direct(rate: float, reached: bool) -> None:
    cells = [cell("direct", "closed 64"), cell("slimscale", "closed 64", per_second=rate)]
    assert claim(cells, "At least 6x")[0] is reached


def test_the_worst_load_counts_for_the_cpu_of_router_and_sidecar() -> None:
    light = {"model": 9e9, "sidecar": 100.0, "router": 100.0}
    heavy = {"model": 0.0, "sidecar": 200.0, "router": 150.0}
    cells = [
        cell("slimscale-routed", "closed 64", cpu_micros=light),
        cell("slimscale-routed", "closed 8", cpu_micros=heavy),
    ]
    reached, said = claim(cells, "us of CPU a request")
    assert reached is False
    assert "350" in said
    assert claim(cells[:1], "us of CPU a request")[0] is True


def test_holding_saves_nothing_when_its_latency_passes_the_target() -> None:
    cells = [
        cell("window-50ms", "poisson 50%", cpu_micros={"a": 1000.0}, p99=70.0),
        cell("slimscale-hold", "poisson 50%", cpu_micros={"a": 1100.0}, p99=80.0),
    ]
    assert claim(cells, "holding setting")[0] is True
    cells[1] = replace(cells[1], p99=130.0)
    assert claim(cells, "holding setting")[0] is False


def test_one_wrong_answer_of_ours_is_a_failure() -> None:
    assert claim([cell("slimscale")], "Every answer")[0] is True
    assert claim([cell("slimscale"), cell("slimscale-routed", wrong=1)], "Every answer")[0] is False


def test_unanswered_requests_pull_up_the_tail() -> None:
    answered = Answered(latencies_micros=[1000] * 50 + [2_000_000] * 50)
    assert quantiles_of(answered) == (1000.5, 2000.0, 2000.0)
    assert quantiles_of(Answered()) == (None, None, None)


def test_a_journal_goes_on_where_it_was_even_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal.load(path)
    journal.keep_turn("0 closed direct", [cell("direct")])
    journal.keep_capacity("0 poisson", 250.0)
    journal.keep_missing("ray", "not installed")
    with path.open("a") as file:
        file.write('{"turn": "0 closed sl')
    again = Journal.load(path)
    assert again.cells == [cell("direct")]
    assert again.done == {"0 closed direct"}
    assert again.capacities == {"0 poisson": 250.0}
    assert again.missing == {"ray": "not installed"}


def test_a_system_that_comes_up_after_all_is_missing_no_more(tmp_path: Path) -> None:
    journal = Journal.load(tmp_path / "journal.jsonl")
    journal.keep_missing("ray", "not installed")
    journal.keep_turn("0 closed ray", [cell("ray")])
    assert journal.missing == {}


def plan(**changes: object) -> Plan:
    usual = Plan(
        systems=("direct", "window-50ms", "slimscale", "ray"),
        groups=groups_of((1, 64), (0.5,), bursts=(0.5,), trace=False, mlperf=(0.5,)),
        repetitions=2,
        seconds=1.0,
        warm_seconds=0.1,
        seed=1,
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def test_each_block_has_every_system_once_and_in_orders_that_differ() -> None:
    blocks = list(plan().blocks())
    orders = [tuple(turn.system for turn in block) for block in blocks]
    assert all(len({turn.group.name for turn in block}) == 1 for block in blocks)
    whole = [order for order in orders if len(order) == 4]
    assert all(sorted(order) == sorted(plan().systems) for order in whole)
    assert len(set(whole)) > 1
    assert orders == [tuple(turn.system for turn in block) for block in plan().blocks()]


def test_the_judge_gets_only_systems_that_speak_v2() -> None:
    judged = [t.system for block in plan().blocks() for t in block if t.group.name == "mlperf"]
    assert set(judged) == {"direct", "window-50ms", "slimscale"}


def test_open_loads_follow_the_measured_capacity() -> None:
    load = Load("poisson", share=0.5)
    few = load.arrivals(100.0, 50.0, seed=1, trace=None)
    many = load.arrivals(400.0, 50.0, seed=1, trace=None)
    assert len(few) == pytest.approx(2500, rel=0.1)
    assert len(many) == pytest.approx(10_000, rel=0.05)
    assert Load("closed", clients=4).arrivals(100.0, 1.0, seed=1, trace=None) == []


@pytest.mark.slow
def test_the_page_names_what_is_missing_and_what_is_not_reached(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "none.jsonl")
    for system, p50 in (("direct", 4.0), ("slimscale", 9.0), ("window-50ms", 60.0)):
        for load in ("closed 1", "closed 64", "poisson 50%"):
            journal.cells.append(cell(system, load, p50=p50))
    journal.missing["ray"] = "not installed: no | such package"
    verdict = Verdict(
        system="slimscale", share=0.5, repetition=0, target_per_second=50.0,
        completed_per_second=49.0, valid=True, p50=5.0, p99=9.0, faults=3, first_fault="x",
    )  # fmt: skip
    journal.verdicts.append(verdict)
    written = write_report(
        journal, plan(systems=("direct", "slimscale", "window-50ms", "ray")), tmp_path / "out",
        command="slimscale bench serving", bodies="JSON", model="m", target_milliseconds=100.0,
    )  # fmt: skip
    text = written[0].read_text()
    assert "| p50 at one client within 1.15x of direct | 2.25x (2.25 to 2.25) | **no** |" in text
    assert "missing: not installed: no / such package" in text
    # Valid for the judge, but three answers were wrong: not passed.
    assert "0 of 1" in text
    assert {path.suffix for path in written} == {".md", ".json", ".png"}
