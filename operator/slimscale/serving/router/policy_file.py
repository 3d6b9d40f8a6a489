"""The file of a learned policy: looked for, judged, taken up while running; a bad one changes nothing.

Two files in one folder: the weights (`policy.safetensors`) and their card (`policy.json`), which names
the weights' SHA-256. A ConfigMap's volume swaps both at once by one link, so both are read behind it.
Every fault is told with its remedy; what was in use before stays in use.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slimscale.api.serving_config import POLICY_CARD_KEY, POLICY_MOST_BYTES, POLICY_WEIGHTS_KEY
from slimscale.serving.router.live import LoadedPolicy

__all__ = ["PolicyFile", "PolicyReader", "read_folder"]

_log = logging.getLogger(__name__)

PolicyReader = Callable[[bytes, Mapping[str, Any]], LoadedPolicy]
"""Weights and card to a policy; ValueError, which says what is wrong, for what is none."""
_REMEDY = "make the ConfigMap with `slimscale train router`"


class PolicyFile:
    """`poll` now and then. `error`: why the present file is not in use, None when it is."""

    def __init__(self, read: PolicyReader) -> None:
        self._read = read
        self._seen: object = None
        self.loaded: LoadedPolicy | None = None
        """The last good one."""
        self.error: str | None = None
        self.loads = 0
        self.failures = 0

    def poll(self, folder: Path, judge: Callable[[LoadedPolicy], None]) -> bool:
        """Look once. True: another policy is in use from now on. `judge`: ValueError if it won't do."""
        seen = _looks(folder)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            data, card = read_folder(folder)
            digest = hashlib.sha256(data + json.dumps(card, sort_keys=True).encode()).hexdigest()
            if self.loaded is not None and self.loaded.digest == digest:
                self.error = None
                return False
            read = self._read(data, card)
            loaded = LoadedPolicy(read.make, read.version, digest)
            judge(loaded)
        except ValueError as error:
            self._complain(str(error))
            return False
        except Exception as error:  # whatever a file holds, the router goes on
            self._complain(f"the policy cannot be read ({type(error).__name__}); {_REMEDY}")
            return False
        self.loaded = loaded
        self.error = None
        self.loads += 1
        _log.info("policy %s taken up (sha256 %s)", loaded.version, digest[:16])
        return True

    def forget(self) -> None:
        """No policy file is asked for any more."""
        self._seen = self.loaded = self.error = None

    def _complain(self, error: str) -> None:
        self.failures += 1
        kept = self.loaded
        instead = "the heuristic answers" if kept is None else f"policy {kept.version} stays in use"
        self.error = f"{error}; {instead}"
        _log.error("policy file refused: %s", self.error)


def read_folder(folder: Path) -> tuple[bytes, Mapping[str, Any]]:
    """Weights and card, which belong together. ValueError names what is wrong and what to do."""
    there = folder.resolve()  # else the link could be swapped between the two
    data = _bytes(there / POLICY_WEIGHTS_KEY, "binaryData")
    text = _bytes(there / POLICY_CARD_KEY, "data")
    if len(data) + len(text) > POLICY_MOST_BYTES:
        raise ValueError(
            f"{POLICY_WEIGHTS_KEY} and {POLICY_CARD_KEY} are over {POLICY_MOST_BYTES} bytes"
            " together; train a smaller network"
        )
    try:
        card = json.loads(text)
    except (ValueError, RecursionError):
        card = None
    if not isinstance(card, dict):
        raise ValueError(  # noqa: TRY004 - a fault of the file, like all others here
            f"{POLICY_CARD_KEY} is no JSON object; {_REMEDY}"
        )
    expected, found = card.get("sha256"), hashlib.sha256(data).hexdigest()
    if expected != found:
        raise ValueError(
            f"{POLICY_WEIGHTS_KEY} has sha256 {found[:16]}..., its card {POLICY_CARD_KEY} says"
            f" {str(expected)[:16]}...: they do not belong together, or one is damaged; {_REMEDY}"
        )
    return data, card


def _bytes(path: Path, part: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(POLICY_MOST_BYTES + 1)
    except OSError:
        raise ValueError(
            f"{path.name} is not there: the ConfigMap of routing.learned.policyConfigMap does not"
            f" exist or has no such key in its {part}; {_REMEDY}"
        ) from None


def _looks(folder: Path) -> object:
    """Changes whenever the files may have: cheaper than reading them each second."""
    found: list[object] = [folder.resolve()]
    for name in (POLICY_WEIGHTS_KEY, POLICY_CARD_KEY):
        try:
            stat = (folder / name).stat()
        except OSError:
            found.append(None)
        else:
            found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
    return found
