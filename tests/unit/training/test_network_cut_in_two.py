"""Split inference: the two halves, run one after the other, are the whole network."""

import numpy as np
import pytest
import torch

from slimscale.bench.bounds.segments import cut_bytes
from slimscale.training.slimmable.export import INPUT, OUTPUT, model_proto, open_session
from slimscale.training.slimmable.network import Shape, SlimmableResNet
from slimscale.training.slimmable.split import split


def _network() -> SlimmableResNet:
    torch.manual_seed(5)
    network = SlimmableResNet(Shape(channels=(16, 16, 32)))
    network.eval()
    return network


@pytest.mark.parametrize("ratio", [0.25, 1.0])
def test_the_second_half_on_the_firsts_output_is_the_whole_network(ratio: float) -> None:
    network = _network()
    images = np.random.default_rng(1).random((3, 1, 28, 28), dtype=np.float32)
    graph = model_proto(network, ratio, name="whole")
    session = open_session(graph, threads=1)
    (whole,) = session.run([OUTPUT], {INPUT: images})
    sizes = cut_bytes(graph)
    for cut in range(4):
        parts = split(network, ratio, cut, name="part")
        passed = images
        if parts.head is not None:
            (passed,) = open_session(parts.head, threads=1).run([parts.tensor], {INPUT: images})
        assert passed[0].nbytes == sizes[cut]
        answer = passed
        if parts.tail is not None:
            (answer,) = open_session(parts.tail, threads=1).run([OUTPUT], {parts.tensor: passed})
        # onnxruntime lays small channels out anew at a graph's edge, which rounds differently
        assert np.abs(answer - whole).max() <= 1e-6 * np.abs(whole).max()


def test_neither_half_holds_the_others_weights() -> None:
    network = _network()
    whole = len(model_proto(network, 1.0, name="whole"))
    parts = split(network, 1.0, 2, name="part")
    assert parts.head is not None
    assert parts.tail is not None
    assert len(parts.head) + len(parts.tail) < 1.05 * whole


def test_a_cut_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="give 0 to 3"):
        split(_network(), 1.0, 4, name="part")
