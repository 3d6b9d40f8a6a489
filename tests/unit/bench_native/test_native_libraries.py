"""Sweeps of numeric libraries: what the child answers, and what the table says."""

import io
import json
import sys

import pytest

from slimscale.bench.native import library_child
from slimscale.bench.native.libraries import THREADS, LibraryCurve, libraries_markdown
from slimscale.bench.native.library_child import Library
from slimscale.bench.native.machine import Machine

MACHINE = Machine("Fast CPU", 2, "x86_64", "6.1", hypervisor=True)


def curve(quota: float, rates: tuple[float, ...]) -> LibraryCurve:
    repeats = tuple((rate * 0.5, rate, rate * 1.1) for rate in rates)
    return LibraryCurve("numba", quota, THREADS, repeats, 1.0)


def test_the_child_answers_each_line_with_what_it_did(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counts: list[int] = []

    def of(threads: int) -> object:
        counts.append(threads)
        return lambda: None

    fake = Library("json", "nothing", lambda: of)  # type: ignore[arg-type,return-value]
    monkeypatch.setitem(library_child.LIBRARIES, "fake", fake)
    monkeypatch.setattr(sys, "stdin", io.StringIO("3 0.001\n1 0.001\n"))
    library_child.main(["fake"])
    ready, *answers = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert ready == {"ready": True}
    assert counts == [1, 3, 1]
    assert all(a["rounds"] > 0 and a["seconds"] >= 0.001 for a in answers)


def test_the_table_names_the_best_count_and_what_is_not_installed() -> None:
    curves = [curve(1.0, (100, 90, 80, 70, 60, 50, 20)), curve(2.0, (100, 180, 170, 9, 9, 9, 45))]
    text = libraries_markdown(curves, ["torch"], MACHINE)
    assert "not installed here: torch" in text
    rows = [line for line in text.splitlines() if line.startswith("| numba")]
    assert "| 1 | **100** |" in rows[0]
    assert rows[0].endswith("| 1.00 | 1.11 | 5.00 |")  # floor(1) = 1; 2 cores; 16
    assert rows[1].endswith("| 1.00 | 1.00 | 4.00 |")


def test_a_repeat_that_was_disturbed_does_not_decide() -> None:
    disturbed = LibraryCurve("numba", 1.0, (1, 2), ((100, 99, 10), (80, 120, 81)), 1.0)
    assert disturbed.best_threads == 1
