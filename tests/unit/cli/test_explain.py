"""`slimscale explain`: a reader of its output learns why, from the live object alone."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slimscale.cli.explain import _parse, render
from slimscale.cli.plots import curve_png, curve_text
from slimscale.exceptions import SlimError

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
BODY: dict[str, Any] = {
    "apiVersion": "slimscale.dev/v1alpha1",
    "kind": "SimWorkload",
    "metadata": {"name": "ant", "namespace": "sims", "managedFields": []},
    "spec": {"targetRef": {"name": "ant"}, "updatePolicy": {"mode": "InPlace"}},
    "status": {
        "current": {"threads": 16, "cpuLimit": "2"},
        "target": {"threads": 3, "cpuLimit": "1500m"},
        "lowerBound": {"threads": 2},
        "upperBound": {"threads": 4},
        "ratio": 41.5,
        "confidence": "High",
        "predictor": "analytic",
        "predictedTasksPerSecond": 812.0,
        "measuredTasksPerSecond": 640.0,
        "inputs": {"taskSeconds": 0.0021, "dispatchSeconds": 5e-5, "cpuLimitCores": 2.0},
        "curve": [
            {"threads": 1, "tasksPerSecond": 300.0},
            {"threads": 3, "tasksPerSecond": 812.0},
        ],
        "steps": [{"stage": "Estimate", "outcome": "ok", "reason": "612 tasks in 15 s"}],
        "pods": [{"name": "ant-1", "threads": 3, "desiredThreads": 3, "state": "UpToDate"}],
        "history": [
            {
                "time": "2026-01-01T11:59:00Z",
                "decisionId": "d1",
                "action": "ScaleDown",
                "fromThreads": 16,
                "toThreads": 3,
                "reason": "three threads reach the most",
            }
        ],
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "UpToDate",
                "message": "all pods",
                "lastTransitionTime": "2026-01-01T11:59:10Z",
            }
        ],
    },
}


def shown(body: dict[str, Any]) -> str:
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(_parse(body), now=NOW))
    console.file.close()
    return console.export_text()


def test_the_output_says_what_was_seen_chosen_and_why() -> None:
    text = shown(BODY)
    for part in (
        "sims/ant", "Deployment/ant", "InPlace", "16 threads, CPU limit 2",
        "3 threads, CPU limit 1500m", "2.1 ms", "50 us", "41.5", "612 tasks in 15 s",
        "<- chosen", "ant-1", "60 s", "16 -> 3", "UpToDate",
    ):  # fmt: skip
        assert part in text


def test_an_object_that_was_never_reconciled_can_be_explained() -> None:
    text = shown({key: value for key, value in BODY.items() if key != "status"})
    assert "InPlace" in text
    assert "-" in text


def test_a_cluster_with_a_newer_crd_gets_a_clear_error() -> None:
    with pytest.raises(SlimError, match=r"spec\.brandNew.*version"):
        _parse({**BODY, "spec": {**BODY["spec"], "brandNew": 1}})


def test_what_a_newer_operator_says_is_left_out_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = {
        **BODY["status"],
        "confidence": "Superb",
        "brandNew": {"a": 1},
        "pods": [{"name": "ant-1", "state": "UpToDate", "mood": "fine"}],
    }
    text = shown({**BODY, "status": status})
    assert "ant-1" in text
    told = capsys.readouterr().err
    for field in ("status.confidence", "status.brandNew", "status.pods.0.mood"):
        assert field in told.replace("\n", "")


def test_a_message_is_shown_as_it_stands_and_moves_no_cursor() -> None:
    steps = [{"stage": "Guard", "outcome": "Held", "reason": "map[cpu:2] [/etc/x] \x1b[2Jend"}]
    text = shown({**BODY, "status": {**BODY["status"], "steps": steps}})
    assert "map[cpu:2] [/etc/x]" in text
    assert "\x1b" not in text


def test_the_chosen_count_is_marked_and_measurements_stand_beside_it() -> None:
    text = curve_text([(2, 20.0), (1, 10.0)], chosen=2, measured=[(2, 18.0)]).plain
    first, second = text.splitlines()
    assert first.split()[0] == "1"
    assert "measured 18/s" in second
    assert second.endswith("<- chosen")
    assert "<- chosen" not in first


def test_a_curve_of_zeros_is_drawn() -> None:
    assert "0/s" in curve_text([(1, 0.0)], chosen=None).plain


def test_the_png_is_a_picture(tmp_path: Path) -> None:
    path = tmp_path / "curve.png"
    curve_png(str(path), [(1, 10.0), (2, 15.0)], chosen=2, title="t", measured=[(2, 14.0)])
    assert path.read_bytes().startswith(b"\x89PNG")
