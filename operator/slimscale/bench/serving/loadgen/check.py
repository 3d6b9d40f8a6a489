"""The requests' bytes, and whether an answer belongs to its request."""

import base64
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Checker", "Image", "read_payload"]

ID_DIGITS = 9
"""All ids have the same length, so that `content-length` is known beforehand."""
ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE = 2e-3, 2e-3
"""One image's logits differ a little with the batch it was in; unlike images differ far more."""


@dataclass(frozen=True, slots=True)
class Image:
    """One input: its body around the id, and the logits that the model gives for it alone."""

    before: bytes
    after: bytes
    logits: tuple[float, ...]
    json_bytes: int
    """Of the JSON in front of binary tensors; 0 where the whole body is JSON."""
    with_id: bool
    """False: the protocol has no ids, and the answer is bare rows."""


def read_payload(path: Path) -> list[Image]:
    """Raises OSError, ValueError or KeyError for a file that `write_payload` has not written."""
    return [
        Image(
            before=base64.b64decode(line["before"]),
            after=base64.b64decode(line["after"]),
            logits=tuple(line["logits"]),
            json_bytes=line["json_bytes"],
            with_id=line["with_id"],
        )
        for line in json.loads(path.read_text())
    ]


class Checker:
    """Makes the bytes of request number `n` and judges its answer."""

    def __init__(
        self,
        images: Sequence[Image],
        *,
        path: str,
        host: str,
        headers: Sequence[tuple[str, str]],
        seed: int,
    ) -> None:
        self._images = images
        self._seed = seed
        fixed = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self._heads = []
        for image in images:
            length = len(image.before) + len(image.after) + ID_DIGITS * image.with_id
            kind = "application/octet-stream" if image.json_bytes else "application/json"
            binary = (
                f"inference-header-content-length: {image.json_bytes}\r\n"
                if image.json_bytes
                else ""
            )
            head = (
                f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: {kind}\r\n{binary}{fixed}"
                f"content-length: {length}\r\n\r\n"
            )
            self._heads.append(head.encode() + image.before)

    def _index(self, number: int) -> int:
        # A fixed mixing of bits: neighbours in a batch carry unlike images, and every run the same.
        return ((number + self._seed) * 2654435761 >> 7) % len(self._images)

    def request(self, number: int) -> bytes:
        index = self._index(number)
        image = self._images[index]
        if not image.with_id:
            return self._heads[index] + image.after
        return self._heads[index] + b"%0*d" % (ID_DIGITS, number) + image.after

    def fault(self, number: int, body: bytes, json_bytes: int) -> str:
        """Empty when the answer is right; else what is wrong with it."""
        image = self._images[self._index(number)]
        try:
            answer = json.loads(body[:json_bytes] if json_bytes else body)
            if not image.with_id:
                values = answer[0]
            elif int(answer["id"]) != number:
                return f"answer of request {answer['id']} for request {number}"
            elif json_bytes:
                values = struct.unpack(f"<{(len(body) - json_bytes) // 4}f", body[json_bytes:])
            else:
                values = answer["outputs"][0]["data"]
                if values and isinstance(values[0], list):  # nested rows, which the protocol allows
                    values = values[0]
        except (ValueError, KeyError, IndexError, TypeError, struct.error) as error:
            return f"{type(error).__name__}: {error} in {body[:80]!r}"
        expected = image.logits
        if len(values) != len(expected):
            return f"{len(values)} logits for request {number}, expected {len(expected)}"
        for value, wanted in zip(values, expected, strict=True):
            if not abs(value - wanted) <= ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * abs(wanted):
                return f"logit {value} for request {number}, expected {wanted}"
        return ""
