"""`slimscale train router`: from segments to a ConfigMap that routers take, or a reason why not."""

import json
from base64 import b64decode
from pathlib import Path

import pytest
import yaml

from slimscale.cli import train_router as command
from slimscale.cli.train_router import train_router
from slimscale.exceptions import SlimError
from slimscale.routing.decision_records import encode_segment
from slimscale.serving.router.learned import read_policy
from slimscale.serving.router.policy_file import read_folder
from slimscale.training.router.from_log import Verdict
from slimscale.training.router.scenes import Case
from tests.unit.training.test_router_from_log import log, policy

pytestmark = pytest.mark.slow  # the first one compiles for some seconds


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """(policy to start from, log of it)."""
    start, segments = tmp_path / "start", tmp_path / "log"
    data, card = policy().write({})
    start.mkdir()
    (start / "policy.safetensors").write_bytes(data)
    (start / "policy.json").write_text(json.dumps(card))
    segments.mkdir()
    records = log(700, lambda pod, width: 0.05 if pod == 0 else 0.5)
    (segments / "r-1-0.safetensors").write_bytes(encode_segment(records, {"policy": "v1"}))
    return start, segments


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch) -> list[Verdict]:
    """What the gate says; simulating its cases is `training`'s own test."""
    said = [Verdict(True, "+0.02 J in the mean", 0.02)]

    def no_cases(_settings: object) -> list[Case]:
        return []

    monkeypatch.setattr(command, "validation_cases", no_cases)
    monkeypatch.setattr(command, "may_publish", lambda *_: said[0])
    return said


def test_a_log_becomes_a_config_map_that_routers_can_read(
    folders: tuple[Path, Path], verdict: list[Verdict], tmp_path: Path
) -> None:
    start, segments = folders
    out = tmp_path / "policy.yaml"
    assert train_router(segments, out=out, name="tuned", start=start, seed=1) == 0
    manifest = yaml.safe_load(out.read_text())
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("ConfigMap", "tuned")
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "policy.json").write_text(manifest["data"]["policy.json"])
    weights = b64decode(manifest["binaryData"]["policy.safetensors"])
    (mounted / "policy.safetensors").write_bytes(weights)
    data, card = read_folder(mounted)
    assert read_policy(data, card).version == "v1+log"
    assert card["started_from"] == "v1"
    assert card["decisions"] == 700


def test_what_the_gate_refuses_is_not_written(
    folders: tuple[Path, Path], verdict: list[Verdict], tmp_path: Path
) -> None:
    verdict[0] = Verdict(False, "worse by 0.03 J in burst at load 0.7", -0.03)
    start, segments = folders
    out = tmp_path / "policy.yaml"
    assert train_router(segments, out=out, name="tuned", start=start, seed=1) == 2
    assert not out.exists()


def test_what_cannot_be_used_is_named_with_the_remedy(
    folders: tuple[Path, Path], verdict: list[Verdict], tmp_path: Path
) -> None:
    start, segments = folders
    out = tmp_path / "policy.yaml"

    def refused(folder: Path, words: str, policy_folder: Path = start) -> None:
        with pytest.raises(SlimError, match=words):
            train_router(folder, out=out, name="tuned", start=policy_folder, seed=1)

    refused(tmp_path / "nothing", "fetch some with `slimscale train fetch-log")
    refused(segments, "policy.safetensors is not there", tmp_path)
    few = tmp_path / "few"
    few.mkdir()
    (few / "a.safetensors").write_bytes(encode_segment(log(20, lambda *_: 0.1), {"policy": "v1"}))
    refused(few, "500 are needed")
    (few / "a.safetensors").write_bytes(encode_segment(log(20, lambda *_: 0.1), {"policy": "v9"}))
    refused(few, "the log is of policy v9, the start is v1; give the folder of that policy")
    (few / "a.safetensors").write_bytes(b"no log")
    refused(few, "this is no decision log")
    assert not out.exists()
