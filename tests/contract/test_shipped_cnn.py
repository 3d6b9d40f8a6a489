"""The slimmable CNN that is shipped: graphs, card and page belong together."""

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from slimscale.training.slimmable.__main__ import WEIGHTS_FOLDER
from slimscale.training.slimmable.card import read_card
from slimscale.training.slimmable.export import INPUT, OUTPUT, open_session
from slimscale.training.slimmable.measure import work_of
from slimscale.training.slimmable.report import PAGE, page

ROOT = Path(__file__).parents[2]
CARD = read_card(WEIGHTS_FOLDER)
MOST_BYTES = 3_000_000


def content(width: dict[str, object]) -> bytes:
    return (WEIGHTS_FOLDER / str(width["model"]) / "model.onnx").read_bytes()


@pytest.mark.parametrize("width", CARD["widths"], ids=lambda width: str(width["model"]))
def test_each_graph_is_the_one_that_its_card_describes(width: dict[str, object]) -> None:
    graph = content(width)
    assert hashlib.sha256(graph).hexdigest() == width["sha256"]
    work = work_of(graph)
    assert (work.parameters, work.flops) == (width["parameters"], width["flops"])


@pytest.mark.parametrize("width", CARD["widths"], ids=lambda width: str(width["model"]))
def test_each_graph_takes_any_number_of_images(width: dict[str, object]) -> None:
    session = open_session(content(width), threads=1)
    assert isinstance(session, onnxruntime.InferenceSession)
    images = np.random.default_rng(1).random((3, 1, 28, 28), dtype=np.float32)
    (together,) = session.run([OUTPUT], {INPUT: images})
    assert together.shape == (3, 10)
    (alone,) = session.run([OUTPUT], {INPUT: images[1:2]})
    np.testing.assert_allclose(alone[0], together[1], rtol=1e-4, atol=1e-4)


def test_all_widths_together_stay_small() -> None:
    assert sum(len(content(width)) for width in CARD["widths"]) < MOST_BYTES


def test_a_wider_network_is_better_and_costs_more() -> None:
    widths = CARD["widths"]
    for key in ("ratio", "accuracy", "flops_ratio"):
        values = [width[key] for width in widths]
        assert values == sorted(values), key
        assert len(set(values)) == len(values), key
    for rows in ("1", "32"):
        narrowest, *_, widest = (width["latency_seconds"][rows] for width in widths)
        assert narrowest < widest


def test_the_page_says_what_the_card_says() -> None:
    written = (ROOT / "docs/results" / PAGE).read_text(encoding="utf-8")
    assert written == page(CARD)
