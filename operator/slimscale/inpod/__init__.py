"""What a simulation imports to follow its thread count. Needs the standard library alone.

    from slimscale import inpod

    pool = inpod.ThreadPool()
    inpod.start(pool)

After `fork` call `start` again in the child: threads do not survive it.
"""

from importlib import import_module

TYPE_CHECKING = False  # importing typing would take most of the time

if TYPE_CHECKING:
    from slimscale.inpod.adapters import apply_to_libraries as apply_to_libraries
    from slimscale.inpod.executor import ThreadPool as ThreadPool
    from slimscale.inpod.follower import Follower as Follower
    from slimscale.inpod.follower import follow as follow
    from slimscale.inpod.recorder import Recorder as Recorder
    from slimscale.inpod.server import serve as serve
    from slimscale.inpod.session import Session as Session
    from slimscale.inpod.session import start as start

_HOMES = {
    "Follower": "follower",
    "Recorder": "recorder",
    "Session": "session",
    "ThreadPool": "executor",
    "apply_to_libraries": "adapters",
    "follow": "follower",
    "serve": "server",
    "start": "session",
}
__all__ = [  # noqa: PLE0604
    *_HOMES
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
