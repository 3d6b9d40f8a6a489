"""Work and bytes by segment, read from the shipped graphs."""

from importlib import resources

import pytest

from slimscale.bench.bounds.segments import cut_bytes, segment_macs
from slimscale.routing.related.cut_layer import CutCosts, best_cut


def _graph(ratio: int) -> bytes:
    folder = resources.files("slimscale.weights") / "fashion" / f"fashion-w{ratio:03d}"
    return (folder / "model.onnx").read_bytes()


def _costs(ratio: int) -> CutCosts:
    macs = segment_macs(_graph(ratio))
    return CutCosts(
        edge_seconds=tuple(count / 1e9 for count in macs),
        server_seconds=tuple(count / 50e9 for count in macs),
        cut_bytes=cut_bytes(_graph(ratio)),
    )


def test_work_and_bytes_are_those_of_the_shapes() -> None:
    """Width 1: a 5x5 stem of stride 2 to 64x14x14, two blocks, one block, one block to 96x7x7."""
    graph = _graph(100)
    assert cut_bytes(graph) == (4 * 28 * 28, 4 * 64 * 196, 4 * 64 * 196, 40)
    stem, conv = 25 * 64 * 196, 64 * 64 * 9 * 196
    last = 64 * 96 * 9 * 49 + 96 * 96 * 9 * 49 + 64 * 96 * 49 + 96 * 10
    assert segment_macs(graph) == (stem + 4 * conv, 2 * conv, last)


def test_slimmer_widths_compute_and_send_less() -> None:
    for slim, wide in ((25, 50), (50, 75), (75, 100)):
        assert sum(segment_macs(_graph(slim))) < sum(segment_macs(_graph(wide)))
        assert cut_bytes(_graph(slim))[1] < cut_bytes(_graph(wide))[1]


@pytest.mark.parametrize("ratio", [25, 100])
def test_this_network_is_worth_no_cut_within_since_its_activations_outgrow_its_image(
    ratio: int,
) -> None:
    """An honest finding: a 3 KB image is smaller than what any inner cut would send."""
    costs = _costs(ratio)
    cuts = {best_cut(costs, bytes_per_second=rate) for rate in (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)}
    assert cuts == {0, 3}
