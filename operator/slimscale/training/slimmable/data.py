"""Fashion-MNIST from files on disk: IDX, gzipped, as Debian's dataset-fashion-mnist installs them."""

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

__all__ = ["CLASSES", "FASHION_FOLDER", "DataMissing", "Images", "Split", "load_fashion"]

FASHION_FOLDER = Path("/usr/share/datasets/fashion-mnist")
REMEDY = (
    "install it with `apt-get install dataset-fashion-mnist` (Debian, Ubuntu), or put the four"
    " *-ubyte.gz files of Fashion-MNIST into a folder and name it with --data"
)
CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
_UNSIGNED_BYTE = 8


class DataMissing(Exception):
    """The data set is not there or is damaged. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Images:
    """pixels (N, 1, H, W) float32 in 0 to 1; labels (N,) int64."""

    pixels: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> "Images":
        return Images(self.pixels[index], self.labels[index])


@dataclass(frozen=True, slots=True)
class Split:
    """`validation` is held out of the training files; `test` is looked at once, at the end."""

    train: Images
    validation: Images
    test: Images


def load_fashion(folder: Path, *, validation: int, seed: int) -> Split:
    """The data set, `validation` images of the training files held out.

    Raises:
        DataMissing: a file is absent or no data set; the message names it and the remedy.
        ValueError: validation is not within the training files.
    """
    known = _read(folder, "train")
    if not 0 < validation < len(known):
        raise ValueError(f"validation {validation}: must be from 1 to {len(known) - 1}")
    order = torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))
    return Split(
        train=known.take(order[validation:]),
        validation=known.take(order[:validation]),
        test=_read(folder, "t10k"),
    )


def _read(folder: Path, part: str) -> Images:
    pixels = read_idx(folder / f"{part}-images-idx3-ubyte.gz", dimensions=3)
    labels = read_idx(folder / f"{part}-labels-idx1-ubyte.gz", dimensions=1)
    if len(pixels) != len(labels):
        raise DataMissing(
            f"{folder}: {len(pixels)} images but {len(labels)} labels of {part!r}; {REMEDY}"
        )
    return Images(
        torch.from_numpy(pixels.astype(np.float32)[:, None] / np.float32(255)),
        torch.from_numpy(labels.astype(np.int64)),
    )


def read_idx(path: Path, *, dimensions: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """One gzipped IDX file of bytes: magic 0, 0, 8, dimensions; sizes as big-endian 32 bit; data.

    Raises:
        DataMissing: absent, not gzip, or not that.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError as error:
        raise DataMissing(f"{path} is missing; {REMEDY}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataMissing(f"{path} is damaged ({error}); {REMEDY}") from error
    head = 4 + 4 * dimensions
    if len(content) < head or content[:4] != bytes([0, 0, _UNSIGNED_BYTE, dimensions]):
        raise DataMissing(f"{path} is no IDX file of {dimensions} dimensions; {REMEDY}")
    sizes = tuple(int(size) for size in np.frombuffer(content[4:head], ">u4"))
    if len(content) - head != int(np.prod(sizes)):
        raise DataMissing(f"{path} is cut short or too long; {REMEDY}")
    return np.frombuffer(content, np.uint8, offset=head).reshape(sizes)
