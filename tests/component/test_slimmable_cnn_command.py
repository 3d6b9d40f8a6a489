"""`python -m slimscale.training.slimmable`, from files of images to graphs, card and page."""

import gzip
import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from slimscale.training.slimmable.__main__ import main
from slimscale.training.slimmable.export import open_session

pytestmark = [pytest.mark.component, pytest.mark.slow, pytest.mark.timeout(300)]


def write_images(folder: Path, part: str, count: int) -> None:
    rng = np.random.default_rng(count)
    for kind, array in (
        ("images-idx3", rng.integers(0, 256, (count, 28, 28))),
        ("labels-idx1", np.arange(count) % 10),
    ):
        head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        path = folder / f"{part}-{kind}-ubyte.gz"
        path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


def test_a_quick_run_writes_a_graph_for_each_width_their_card_and_a_page(tmp_path: Path) -> None:
    write_images(tmp_path, "train", 640)
    write_images(tmp_path, "t10k", 20)
    out, results = tmp_path / "out", tmp_path / "results"
    places = ["--data", str(tmp_path), "--out", str(out), "--results", str(results)]
    checkpoint = tmp_path / "network.safetensors"
    asked = ["--quick", "--threads", "1", *places, "--checkpoint", str(checkpoint)]
    assert main(["train", *asked]) == 0
    assert checkpoint.is_file()
    card = json.loads((out / "card.json").read_text())
    assert [width["model"] for width in card["widths"]] == [
        "fashion-w025", "fashion-w050", "fashion-w075", "fashion-w100",
    ]  # fmt: skip
    assert card["test_images"] == 20
    for width in card["widths"]:
        graph = (out / width["model"] / "model.onnx").read_bytes()
        assert isinstance(open_session(graph, threads=1), onnxruntime.InferenceSession)
        assert set(width["latency_seconds"]) == {"1", "2", "4", "8", "16", "32"}
    page = (results / "slimmable-cnn.md").read_text()
    assert all(f"`{width['model']}`" in page for width in card["widths"])
    assert (results / "slimmable-cnn.png").read_bytes()[:4] == b"\x89PNG"
    assert main(["measure", *asked]) == 0
    again = json.loads((out / "card.json").read_text())
    assert [w["sha256"] for w in again["widths"]] == [w["sha256"] for w in card["widths"]]
    assert [w["accuracy"] for w in again["widths"]] == [w["accuracy"] for w in card["widths"]]


def test_what_is_missing_is_said_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--data", str(tmp_path)]) == 1
    assert "apt-get install dataset-fashion-mnist" in capsys.readouterr().out
    assert main(["report", "--out", str(tmp_path)]) == 1
    assert "no model card" in capsys.readouterr().out
