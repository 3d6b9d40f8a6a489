"""`slimscale bench threads` as its users meet it."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slimscale.bench.registry import POLICIES
from slimscale.cli.main import app
from slimscale.exceptions import SlimError


def test_help_has_an_example() -> None:
    shown = CliRunner().invoke(app, ["bench", "threads", "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "slimscale bench threads --quick" in shown.output


def test_the_policies_are_named_on_demand() -> None:
    shown = CliRunner().invoke(app, ["bench", "threads", "--list"])
    assert shown.output.split() == list(POLICIES)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--policy", "nobody"], "no policy 'nobody'"),
        (["--scenario", "c7-"], "no scenario has 'c7-'"),
        (["--policy", "unset", "--out", "x"], "leave out --policy or --out"),
    ],
)
def test_a_mistake_is_one_line_with_its_remedy(
    options: list[str], words: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(
        app, ["bench", "threads", "--quick", "--work", str(tmp_path), *options]
    )
    assert isinstance(result.exception, SlimError)
    assert words in str(result.exception)


def test_without_the_simulators_packages_the_message_names_the_extras(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [m for m in sys.modules if m.startswith(("slimscale.bench", "slimscale.simulate"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)
    result = CliRunner().invoke(app, ["bench", "threads", "--list"])
    assert isinstance(result.exception, SlimError)
    assert "pip install '.[simulate,bench]'" in str(result.exception)


def test_one_policy_on_one_scenario_prints_its_share_of_the_best(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app,
        ["bench", "threads", "--quick", "--seeds", "1", "--processes", "1",
         "--work", str(tmp_path), "--scenario", "steps", "--policy", "fixed-8"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    row = next(line for line in result.output.splitlines() if "fixed-8" in line)
    assert 0.3 < float(row.split("│")[2]) < 1.05


def test_the_simulator_is_compared_with_closed_forms_and_the_page_says_how(tmp_path: Path) -> None:
    page = tmp_path / "validation.md"
    done = CliRunner().invoke(
        app, ["bench", "simulator", "--tasks", "1000", "--out", str(page)], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    text = page.read_text()
    assert "slimscale bench simulator --seed 11 --tasks 1000" in text
    assert "rows agree." in text
