"""Two checkouts share the cluster's name; neither takes the other's away."""

from pathlib import Path

import pytest

from e2e.cluster.host import HostLacks
from e2e.cluster.owner import claim, release, require_ours


def _checkout(root: Path, name: str) -> Path:
    state = root / name
    state.mkdir()
    (state / "cluster.json").write_text("{}")
    return state


def test_another_checkouts_cluster_is_refused_with_its_place_and_both_ways_out(
    tmp_path: Path,
) -> None:
    first, second = _checkout(tmp_path, "first"), _checkout(tmp_path, "second")
    claim(tmp_path / "register", "slimscale-e2e", first)
    with pytest.raises(HostLacks) as refused:
        require_ours(tmp_path / "register", "slimscale-e2e", second)
    for words in (str(first), "make clean", "SLIMSCALE_E2E_CLUSTER"):
        assert words in str(refused.value)


@pytest.mark.parametrize("case", ["its own", "of a deleted checkout", "released", "of nobody"])
def test_a_cluster_is_free_to_remake_when_it_is(tmp_path: Path, case: str) -> None:
    first, second = _checkout(tmp_path, "first"), _checkout(tmp_path, "second")
    register = tmp_path / "register"
    if case != "of nobody":
        claim(register, "slimscale-e2e", second if case == "its own" else first)
    if case == "of a deleted checkout":
        (first / "cluster.json").unlink()
    if case == "released":
        release(register, "slimscale-e2e")
    problem = ""
    try:
        require_ours(register, "slimscale-e2e", second)
    except HostLacks as error:
        problem = str(error)
    assert problem == ""
