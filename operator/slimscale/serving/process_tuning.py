"""What a process that only passes requests through asks of Python's garbage collector."""

import gc

__all__ = ["calm_collector"]


def calm_collector() -> None:
    """Look for cycles seldom, and never among what was there at the start.

    Requests make no cycles: nearly all is freed by counting references. The collector's default (a
    look every 700 objects, through all modules now and then) would take a tenth of the CPU and add
    pauses to the slowest answers.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
