"""The table of batching limits that ships; the sidecar uses it where its settings ask for it."""

import json
from functools import lru_cache
from importlib import resources

from slimscale.routing.batching_table import BatchingTable, read_table

__all__ = ["BATCHING_LIMITS", "shipped_batching_table"]

BATCHING_LIMITS = "batching-limits.json"


@lru_cache(maxsize=1)
def shipped_batching_table() -> BatchingTable:
    """Read once. Raises ValueError where the installation's own file is no table."""
    content = (resources.files(__package__) / BATCHING_LIMITS).read_text(encoding="utf-8")
    return read_table(json.loads(content))
