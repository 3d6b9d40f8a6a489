"""What is derived from code says what the code says."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from slimscale.api.crd import simworkload_crd
from slimscale.api.sliminference_crd import sliminference_crd
from slimscale.cli.generate import checkout_root, generate, generated_files
from tests.support.helm import ROOT, render

CRD_FILE = Path("crds/simworkloads.yaml")


def test_every_committed_file_is_what_generate_would_write() -> None:
    stale = [
        str(path)
        for path, text in generated_files(ROOT).items()
        if (ROOT / path).read_text(encoding="utf-8") != text
    ]
    assert not stale, "run `make generate` and commit"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what generate reads and writes."""
    chart = Path("charts/slimscale")
    paths = [*generated_files(ROOT), chart / "values.yaml", chart / "Chart.yaml"]
    for path in paths:
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / path).read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def test_a_check_shows_an_edited_file_and_changes_nothing(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited = checkout / CRD_FILE
    edited.write_text(edited.read_text().replace("maximum: 1024", "maximum: 9999"))
    before = edited.read_text()

    assert generate(check=True, root=checkout) == 1

    shown = capsys.readouterr()
    assert "-                      maximum: 9999" in shown.out
    assert "+                      maximum: 1024" in shown.out
    assert "slimscale generate" in shown.err
    assert edited.read_text() == before


def test_generate_mends_what_a_check_found(checkout: Path) -> None:
    (checkout / CRD_FILE).unlink()
    assert generate(check=False, root=checkout) == 0
    assert generate(check=True, root=checkout) == 0


def test_the_checkout_is_found_from_the_package() -> None:
    assert checkout_root() == ROOT


@pytest.mark.parametrize("make", [simworkload_crd, sliminference_crd])
def test_the_charts_crds_are_the_committed_ones(make: Callable[[], dict[str, Any]]) -> None:
    wanted = make()
    plural = wanted["spec"]["names"]["plural"]
    committed: dict[str, Any] = yaml.safe_load((ROOT / f"crds/{plural}.yaml").read_text())
    name = wanted["metadata"]["name"]
    [rendered] = [
        d
        for d in render()
        if d["kind"] == "CustomResourceDefinition" and d["metadata"]["name"] == name
    ]
    rendered = copy.deepcopy(rendered)
    assert rendered["metadata"].pop("labels")["helm.sh/chart"].startswith("slimscale-")
    assert rendered["metadata"]["annotations"].pop("helm.sh/resource-policy") == "keep"
    assert rendered == committed == wanted


def test_the_crd_goes_with_the_chart_only_where_keep_is_off() -> None:
    rendered = [d for d in render(values="everything") if d["kind"] == "CustomResourceDefinition"]
    assert len(rendered) == 2
    assert not any("helm.sh/resource-policy" in d["metadata"]["annotations"] for d in rendered)
    assert not [d for d in render(values="minimal") if d["kind"] == "CustomResourceDefinition"]
