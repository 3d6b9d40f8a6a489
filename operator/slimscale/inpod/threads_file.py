"""The file through which a pod is told its thread count, and what to make of its content.

The kubelet writes the pod's annotation into it and swaps it whole. It can be absent (no volume),
empty (no annotation) or hold anything that someone has annotated.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

__all__ = [
    "MAX_THREADS",
    "THREADS_ENV",
    "THREADS_FILE",
    "THREADS_FILE_ENV",
    "Ignored",
    "ThreadsValue",
    "parse_threads",
    "read_threads",
    "starting_threads",
    "threads_path",
]

THREADS_FILE: Final = "/etc/slimscale/threads"
THREADS_FILE_ENV: Final = "SLIMSCALE_THREADS_FILE"
THREADS_ENV: Final = "SLIMSCALE_THREADS"
MAX_THREADS: Final = 1024
"""More threads than this help no pod and can exhaust its process limit."""
_MAX_BYTES: Final = 64


class Ignored(StrEnum):
    """Why a value was not used as it stands."""

    ABSENT = "absent"
    EMPTY = "empty"
    NOT_A_NUMBER = "not-a-number"
    NOT_POSITIVE = "not-positive"
    TOO_LARGE = "too-large"


@dataclass(frozen=True, slots=True)
class ThreadsValue:
    """threads None: keep what is in use. A clamped value has both a count and a reason."""

    threads: int | None
    ignored: Ignored | None = None


def threads_path() -> Path:
    return Path(os.environ.get(THREADS_FILE_ENV) or THREADS_FILE)


def parse_threads(content: bytes, *, maximum: int = MAX_THREADS) -> ThreadsValue:
    """A decimal count, clamped to `maximum`; anything else is ignored with its reason."""
    text = content.strip()
    if not text:
        return ThreadsValue(None, Ignored.EMPTY)
    negative = text.startswith(b"-")
    digits = text[1:] if negative else text
    if not digits.isdigit() or len(content) > _MAX_BYTES:
        return ThreadsValue(None, Ignored.NOT_A_NUMBER)
    count = int(digits)
    if negative or count == 0:
        return ThreadsValue(None, Ignored.NOT_POSITIVE)
    if count > maximum:
        return ThreadsValue(maximum, Ignored.TOO_LARGE)
    return ThreadsValue(count)


def read_threads(path: Path, *, maximum: int = MAX_THREADS) -> ThreadsValue:
    """Read the file; never raises and never reads more than a few bytes."""
    try:
        # Non-blocking, so that a path to a pipe cannot stop the program.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ThreadsValue(None, Ignored.ABSENT)
    try:
        content = os.read(descriptor, _MAX_BYTES + 1)
    except OSError:
        return ThreadsValue(None, Ignored.ABSENT)
    finally:
        os.close(descriptor)
    return parse_threads(content, maximum=maximum)


def starting_threads() -> int | None:
    """The count to start with: the file's, else SLIMSCALE_THREADS; None: nobody has said."""
    from_file = read_threads(threads_path()).threads
    if from_file is not None:
        return from_file
    return parse_threads(os.environ.get(THREADS_ENV, "").encode()).threads
