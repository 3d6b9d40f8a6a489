"""The demo of SlimInference fails when a request was lost, and says what else does not hold."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.demo_inference.report import counts, draw, markdown, record, timeline_table
from e2e.demo_inference.verdict import Look, Story, attainment, busy_moment, failures, slices
from e2e.load.tally import Ended, Tally

ENDED = [
    Ended(0, 1.0, 10.0, "right", "fashion-w100", "p"),
    Ended(1, 2.0, 30.0, "right", "fashion-w100", "p"),
    Ended(2, 12.0, 20.0, "right", "fashion-w025", "p"),
    Ended(3, 13.0, 500.0, "lost", detail="no answer within the deadline"),
]
LOOKS = [
    Look(0.0, {"small": 1, "large": 0}, {"small": 1, "large": 0}),
    Look(9.0, {"small": 2, "large": 0}, {"small": 1, "large": 0}),
    Look(15.0, {"small": 2, "large": 0}, {"small": 2, "large": 0}),
    Look(40.0, {"small": 1, "large": 0}, {"small": 1, "large": 0}),
]
CUTS = slices(ENDED, LOOKS, seconds=20.0, slice_seconds=10.0)
COUNTED = Tally(4, 4, 0, 0, 0, 0, 0, 20.0, 30.0, 30.0, ())
GOOD = Story(COUNTED, CUTS, tuple(LOOKS), "pod-1", 10.0, 25.0, 0.5, ("small: 1 to 2: load",))


def test_a_slice_tells_rate_latency_widths_and_replicas_of_its_time() -> None:
    first, second = CUTS
    assert (first.per_second, first.p50, first.share) == (0.2, 20.0, {"fashion-w100": 1.0})
    assert first.ready == {"small": 1, "large": 0}
    assert second.ready == {"small": 2, "large": 0}
    assert (second.requests, second.not_right) == (2, 1)
    assert second.share == {"fashion-w025": 1.0}


def test_a_request_of_the_last_instant_belongs_to_the_last_slice() -> None:
    late = [Ended(0, 24.9, 10.0, "right", "m", "p")]
    cuts = slices(late, [], seconds=25.0, slice_seconds=10.0)
    assert [cut.requests for cut in cuts] == [0, 0, 1]
    assert (cuts[2].end, cuts[2].per_second) == (25.0, 0.2)


def test_a_story_that_holds_has_no_failures() -> None:
    assert failures(GOOD) == []


@pytest.mark.parametrize(
    ("story", "word"),
    [
        (replace(GOOD, tally=replace(COUNTED, right=3, lost=1)), "1 of 4 requests lost"),
        (replace(GOOD, tally=replace(COUNTED, doubled=2)), "2 of 4 requests doubled"),
        (replace(GOOD, tally=replace(COUNTED, right=3, wrong=1)), "answered wrongly"),
        (replace(GOOD, tally=replace(COUNTED, right=3, refused=1)), "refused"),
        (replace(GOOD, tally=replace(COUNTED, planned=0, right=0)), "no request was answered"),
        (replace(GOOD, killed=""), "to be killed"),
        (replace(GOOD, looks=tuple(LOOKS[:1])), "never changed"),
        (replace(GOOD, looks=()), "never changed"),
    ],
)
def test_each_broken_promise_is_named(story: Story, word: str) -> None:
    assert word in "; ".join(failures(story))


def test_table_page_and_picture_show_the_story(tmp_path: Path) -> None:
    page = markdown(GOOD, where="Here.", how="So.")
    assert "| 0-10 | 0.2 | 20.0 | 30 | 0 | 100 | 0 | 1 | 0 |" in page
    assert "pod-1 was deleted" in page
    assert "- small: 1 to 2: load" in page
    assert timeline_table(GOOD).row_count == len(CUTS)
    assert "4 requests: 4 right, 0 lost" in counts(GOOD)
    draw(tmp_path / "demo.png", GOOD)
    assert (tmp_path / "demo.png").stat().st_size > 10_000


def test_the_record_is_strict_json_where_a_slice_had_no_answer() -> None:
    cuts = slices([], LOOKS, seconds=10.0, slice_seconds=10.0)
    text = json.dumps(record(replace(GOOD, slices=cuts)), allow_nan=False)
    assert json.loads(text)["slices"][0]["p50"] is None


def test_the_pod_is_killed_while_requests_come() -> None:
    arrivals = [0.1, 0.2, 10.5, 12.1, 12.2, 12.3, 19.9]
    assert busy_moment(arrivals, 5.0) == 10.0
    assert (
        busy_moment(
            [0.1 * n for n in range(100)] + [12.0, 19.0, 19.1, 19.2, 19.3, 19.4, 19.5], 11.0
        )
        == 19.0
    )
    assert busy_moment(arrivals, 19.95) == 19.95


def test_only_right_answers_in_time_attain_the_slo() -> None:
    assert attainment(ENDED, 20.0) == 0.5
    assert attainment([], 20.0) == 0.0
    assert "50.0 % within the SLO of 25 ms" in counts(GOOD)
