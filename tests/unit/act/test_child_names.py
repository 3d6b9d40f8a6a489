"""Names of children (long names, shared beginnings, odd characters)."""

import re

from hypothesis import given
from hypothesis import strategies as st

from slimscale.act.child_names import child_name, memo_name, owner_label

RFC1035 = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
owners = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True)


@given(owners, st.sampled_from(["", "memo", "router", "pool-a"]))
def test_every_name_is_a_valid_label(owner: str, suffix: str) -> None:
    name = child_name(owner, suffix)
    assert len(name) <= 63
    assert RFC1035.fullmatch(name)


@given(owners, owners)
def test_two_owners_never_share_a_child(first: str, second: str) -> None:
    if first != second:
        assert memo_name(first) != memo_name(second)


def test_owners_that_differ_late_or_in_punctuation_have_children_of_their_own() -> None:
    long = "a" * 60
    names = {memo_name(n) for n in (long, long + "b", long + "c" * 190, "a.b", "a-b", "9-digits")}
    assert len(names) == 6


def test_names_stay_the_same_in_the_next_release_too() -> None:
    """Another name would orphan what was learned."""
    assert memo_name("sim") == "slimscale-sim-memo-4f1467f5"
    assert owner_label("x" * 253) == f"slimscale-{'x' * 44}-f1f55779"
