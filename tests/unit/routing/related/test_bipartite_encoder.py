"""The graph encoder: order does not matter, machines that vanish leave no trace, any size fits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slimscale.routing.related.bipartite import BipartiteEncoder

ENCODER = BipartiteEncoder(requests=3, machines=2, edges=2)


def _weights(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [ENCODER.initial(rng)[: -ENCODER.hidden], rng.normal(size=ENCODER.hidden)]
    )


def _graph(rng: np.random.Generator, requests: int, machines: int) -> dict[str, np.ndarray]:
    return {
        "requests": rng.normal(size=(requests, 3)),
        "machines": rng.normal(size=(machines, 2)),
        "edges": rng.normal(size=(requests, machines, 2)),
        "mask": rng.random((requests, machines)) < 0.8,
        "prior": rng.normal(size=(requests, machines)),
    }


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 9))
def test_in_another_order_the_same_pairs_get_the_same_scores(
    seed: int, requests: int, machines: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = _graph(rng, requests, machines)
    rows, columns = rng.permutation(requests), rng.permutation(machines)
    scores = ENCODER.scores(_weights(seed), **graph)
    pairs = np.ix_(rows, columns)
    moved = ENCODER.scores(
        _weights(seed),
        requests=graph["requests"][rows],
        machines=graph["machines"][columns],
        edges=graph["edges"][pairs],
        mask=graph["mask"][pairs],
        prior=graph["prior"][pairs],
    )
    assert np.allclose(moved, scores[pairs])


def test_a_machine_without_edges_counts_as_one_that_is_not_there() -> None:
    rng = np.random.default_rng(1)
    graph = _graph(rng, 4, 5)
    graph["mask"][:] = True
    graph["mask"][:, 2] = False
    with_it = ENCODER.scores(_weights(2), **graph)
    kept = [0, 1, 3, 4]
    without = ENCODER.scores(
        _weights(2),
        requests=graph["requests"],
        machines=graph["machines"][kept],
        edges=graph["edges"][:, kept],
        mask=graph["mask"][:, kept],
        prior=graph["prior"][:, kept],
    )
    assert np.allclose(with_it[:, kept], without)
    assert np.isneginf(with_it[:, 2]).all()


def test_twice_as_many_of_the_same_change_no_score() -> None:
    """Means, not sums: so that a pool of another size is nothing new to it."""
    graph = _graph(np.random.default_rng(6), 3, 4)
    once = ENCODER.scores(_weights(5), **graph)
    twice = {
        name: np.concatenate([part, part], axis=0 if name == "machines" else 1)
        for name, part in graph.items()
        if name != "requests"
    }
    both = ENCODER.scores(_weights(5), requests=graph["requests"], **twice)
    assert np.allclose(both[:, :4], once)
    assert np.allclose(both[:, 4:], once)


def test_a_request_sees_how_the_other_machines_are() -> None:
    """What a set of independent scores cannot: the same pair is worth less beside a better machine."""
    rng = np.random.default_rng(3)
    graph = _graph(rng, 2, 3)
    graph["mask"][:] = True
    before = ENCODER.scores(_weights(4), **graph)[0, 0]
    graph["machines"][2] += 2.0
    assert ENCODER.scores(_weights(4), **graph)[0, 0] != pytest.approx(before, abs=1e-6)


def test_weights_of_another_encoder_are_refused() -> None:
    with pytest.raises(ValueError, match="weights has shape"):
        ENCODER.scores(np.zeros(3), **_graph(np.random.default_rng(0), 1, 1))
