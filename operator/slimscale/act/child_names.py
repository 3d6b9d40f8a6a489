"""Names of our own children, derived from a custom resource's. Valid, unique and stable."""

import hashlib
import re

__all__ = ["MAX_NAME_LENGTH", "child_name", "memo_name", "owner_label"]

MAX_NAME_LENGTH = 63
_HASH_LENGTH = 8
_PREFIX = "slimscale"


def child_name(owner: str, suffix: str = "") -> str:
    """A DNS label (RFC 1035) of at most 63 characters, the same after each restart.

    The hash is over the whole owner name and is always there, so that two owners that share a long
    beginning, or that differ in dots and dashes alone, never share a child.

    Args:
        owner: a custom resource's name, up to 253 characters, with dots.
        suffix: kind of the child, a short DNS label.
    """
    digest = hashlib.sha256(f"{owner}\0{suffix}".encode()).hexdigest()[:_HASH_LENGTH]
    tail = f"-{suffix}-{digest}" if suffix else f"-{digest}"
    head = re.sub(r"[^a-z0-9-]+", "-", f"{_PREFIX}-{owner}".lower())
    return head[: MAX_NAME_LENGTH - len(tail)].rstrip("-") + tail


def memo_name(owner: str) -> str:
    """The ConfigMap with what was learned about a SimWorkload."""
    return child_name(owner, "memo")


def owner_label(owner: str) -> str:
    """Value of the label that marks children of this owner: a custom resource name may be longer."""
    return child_name(owner)
