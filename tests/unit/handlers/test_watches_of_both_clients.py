"""A watch that dies without a word is noticed by kopf's client and by ours."""

import importlib.metadata
import inspect
from typing import Any

import kopf
from packaging.version import Version

from slimscale.handlers import resources
from slimscale.kubeapi.client import AioKubeClient


def test_our_own_watches_end_by_silence() -> None:
    silence = inspect.signature(AioKubeClient).parameters["watch_silence_seconds"].default
    assert 60 < silence <= 120, "servers send a bookmark each minute"


def test_kopf_is_one_that_reconnects_by_itself() -> None:
    """A1: before 1.44 a watch without a FIN hung for ever."""
    assert Version(importlib.metadata.version("kopf")) >= Version("1.44")


async def test_the_handler_gives_kopf_nothing_to_store() -> None:
    """A7: what a handler returns would be written into the status, and pruned there."""
    registry = kopf.OperatorRegistry()
    resources.register(registry, lambda *_: {"a": "result"})
    [handler] = registry._watching.get_all_handlers()
    thing: Any = {"metadata": {"namespace": "ns", "name": "ants", "uid": "u"}}
    result = await handler.fn(event={"type": "ADDED", "object": thing})  # type: ignore[call-arg,misc]
    assert result is None
