"""The slimmable network: shared weights, distillation, export; on made-up images, with few channels."""

import gzip
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from torch import Tensor

from slimscale.training.slimmable.data import DataMissing, Images, load_fashion
from slimscale.training.slimmable.export import check_export, export, model_proto
from slimscale.training.slimmable.fit import (
    FitSettings,
    accuracies,
    calibrate,
    fit,
    sandwich_step,
)
from slimscale.training.slimmable.layers import channels_at
from slimscale.training.slimmable.measure import fit_line, work_of
from slimscale.training.slimmable.network import Shape, SlimmableResNet
from slimscale.training.slimmable.train import TrainSettings, load_checkpoint, save_checkpoint

SHAPE = Shape(channels=(8, 8), blocks=(1, 1), strides=(1, 2), classes=4, stem_stride=4)


def network_of(shape: Shape = SHAPE, seed: int = 1) -> SlimmableResNet:
    torch.manual_seed(seed)
    return SlimmableResNet(shape)


def stripes(count: int, seed: int) -> Images:
    """Four kinds of image: bright at the top, at the bottom, in the middle, all over; in noise."""
    rng = np.random.default_rng(seed)
    pixels = rng.random((count, 1, 28, 28), dtype=np.float32) * 0.5
    labels = rng.integers(0, 4, count)
    bands = (np.s_[:, :9, :], np.s_[:, 19:, :], np.s_[:, 9:19, 9:19], np.s_[:, :, :])
    for image, label in zip(pixels, labels, strict=True):
        image[bands[label]] += 0.5
    return Images(torch.from_numpy(pixels), torch.from_numpy(labels))


def own_gradients(network: SlimmableResNet, ratio: float) -> Tensor | None:
    """Of what only this width has: the affine map of its stem's normalisation."""
    gradient: Tensor | None = network.stem.norm.at(ratio).weight.grad
    return None if gradient is None else gradient.clone()


def one_step(labels: Tensor, *, between: int = 1, seed: int = 1) -> SlimmableResNet:
    network = network_of()
    images = stripes(32, 5)
    sandwich_step(
        network,
        images.pixels,
        labels,
        settings=FitSettings(between=between),
        rng=Random(seed),
    )
    return network


def test_a_narrower_network_uses_the_first_channels_of_the_same_weights() -> None:
    network = network_of().eval()
    conv = network.segments[0][0].first.conv
    narrow = conv.sliced(2, 0.25)
    assert tuple(narrow.shape) == (2, 2, 3, 3)
    assert narrow.data_ptr() == conv.weight.data_ptr()
    image = stripes(4, 1).pixels
    before = {ratio: network(image, ratio) for ratio in (0.25, 1.0)}
    with torch.no_grad():
        conv.weight[4:] += 1.0  # channels that the narrowest lacks
    assert torch.equal(network(image, 0.25), before[0.25])
    assert not torch.allclose(network(image, 1.0), before[1.0])
    with torch.no_grad():
        conv.weight[0, 0] += 1.0
    assert not torch.allclose(network(image, 0.25), before[0.25])


def test_each_step_trains_the_widest_the_narrowest_and_as_many_between_as_asked() -> None:
    labels = stripes(32, 5).labels
    network = one_step(labels)
    trained = {r for r in SHAPE.ratios if own_gradients(network, r) is not None}
    assert {0.25, 1.0} < trained
    assert len(trained) == 3
    drawn = {
        r for seed in range(4) for r in (0.5, 0.75)
        if own_gradients(one_step(labels, seed=seed), r) is not None
    }  # fmt: skip
    assert drawn == {0.5, 0.75}
    none_between = one_step(labels, between=0)
    assert own_gradients(none_between, 0.5) is None


def test_narrower_widths_learn_from_the_widest_one_s_answers_not_from_labels() -> None:
    labels = stripes(32, 5).labels
    one, other = one_step(labels), one_step((labels + 1) % 4)
    narrow = own_gradients(one, 0.25), own_gradients(other, 0.25)
    assert narrow[0] is not None
    assert narrow[1] is not None
    torch.testing.assert_close(narrow[0], narrow[1])
    wide = own_gradients(one, 1.0), own_gradients(other, 1.0)
    assert wide[0] is not None
    assert wide[1] is not None
    assert not torch.allclose(wide[0], wide[1])


def test_the_teacher_is_not_pulled_towards_its_pupils() -> None:
    labels = stripes(32, 5).labels
    alone = network_of()
    loss = torch.nn.functional.cross_entropy(alone(stripes(32, 5).pixels, 1.0), labels)
    loss.backward()
    with_pupils, by_itself = own_gradients(one_step(labels), 1.0), own_gradients(alone, 1.0)
    assert with_pupils is not None
    assert by_itself is not None
    torch.testing.assert_close(with_pupils, by_itself)


def test_every_width_learns() -> None:
    network = network_of()
    fit(
        network,
        stripes(512, 1),
        settings=FitSettings(epochs=3, batch=32),
        step_done=lambda _: None,
        epoch_done=lambda _: None,
    )
    calibrate(network, stripes(256, 2))
    found = accuracies(network, stripes(400, 3))
    assert set(found) == set(SHAPE.ratios)
    assert min(found.values()) > 0.45, found  # chance is 0.25


def test_statistics_of_every_width_are_those_of_the_images_after_calibration() -> None:
    network = network_of()
    images = stripes(200, 4)
    calibrate(network, images, batch=50)
    for ratio in SHAPE.ratios:
        with torch.no_grad():
            features = network.stem.conv(images.pixels, ratio)
        torch.testing.assert_close(
            network.stem.norm.at(ratio).running_mean, features.mean(dim=(0, 2, 3))
        )
    assert not network.training


def test_an_exported_graph_answers_as_the_network_at_that_width(tmp_path: Path) -> None:
    network = network_of()
    calibrate(network, stripes(100, 6))  # statistics that are not 0 and 1
    paths = export(network, tmp_path, service="tiny")
    assert [path.parent.name for path in paths.values()] == [
        "tiny-w025", "tiny-w050", "tiny-w075", "tiny-w100",
    ]  # fmt: skip
    worst = check_export(network, paths, stripes(7, 7).pixels, tolerance=1e-5)
    assert max(worst.values()) <= 1e-5


def test_a_graph_that_is_not_the_network_is_refused(tmp_path: Path) -> None:
    network = network_of()
    paths = export(network, tmp_path, service="tiny")
    with torch.no_grad():
        network.head.weight += 0.1
    with pytest.raises(ValueError, match=r"tiny-w025.*this graph is not the network"):
        check_export(network, paths, stripes(7, 7).pixels, tolerance=1e-5)


def test_work_and_parameters_are_those_of_the_sliced_layers() -> None:
    shape = Shape(channels=(8,), blocks=(1,), strides=(1,), classes=4, stem_stride=4)
    work = work_of(model_proto(network_of(shape).eval(), 0.5, name="half"))
    stem, block, head = 4 * 25 + 4, 2 * (4 * 4 * 9 + 4), 4 * 4 + 4
    assert work.parameters == stem + block + head
    assert work.flops == 2 * (4 * 25 * 49 + 2 * 4 * 4 * 9 * 49 + 16)


def test_a_checkpoint_gives_the_network_and_its_facts_back(tmp_path: Path) -> None:
    network = network_of().eval()
    settings = replace(TrainSettings(), shape=SHAPE)
    path = tmp_path / "below/network.safetensors"
    save_checkpoint(path, network, {"seconds": 3}, settings)
    again, facts = load_checkpoint(path)
    image = stripes(3, 1).pixels
    assert torch.equal(again(image, 0.5), network(image, 0.5))
    assert facts == {"seconds": 3}
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="no checkpoint of a slimmable network"):
        load_checkpoint(path)


@pytest.mark.parametrize("ratios", [(0.5, 0.25, 1.0), (0.5, 0.75), (0.0, 1.0), (1.0, 1.0)])
def test_widths_that_make_no_sense_are_refused(ratios: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="ratios"):
        Shape(ratios=ratios)


def test_channels_are_never_none() -> None:
    assert [channels_at(64, ratio) for ratio in (0.25, 0.5, 0.75, 1.0)] == [16, 32, 48, 64]
    assert channels_at(2, 0.25) == 1


def test_the_line_through_the_times_counts_small_and_large_batches_alike() -> None:
    rows = (1, 2, 4, 8, 16, 32)
    base, row, error = fit_line(rows, [0.003 + 0.0005 * b for b in rows])
    assert base == pytest.approx(0.003)
    assert row == pytest.approx(0.0005)
    assert error == pytest.approx(0.0, abs=1e-9)
    base, row, _ = fit_line(rows, [0.001 * b**1.2 for b in rows])
    assert base == 0.0
    assert row > 0.001


# ---- the data set's files


def write_idx(folder: Path, part: str, images: np.ndarray, labels: np.ndarray) -> None:
    folder.mkdir(exist_ok=True)
    for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
        head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
        path = folder / f"{part}-{kind}-ubyte.gz"
        path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    for part, count in (("train", 30), ("t10k", 5)):
        write_idx(tmp_path, part, rng.integers(0, 256, (count, 28, 28)), np.arange(count) % 10)
    return tmp_path


def test_validation_images_are_no_training_images_and_stay_the_same(files: Path) -> None:
    split = load_fashion(files, validation=10, seed=3)
    assert (len(split.train), len(split.validation), len(split.test)) == (20, 10, 5)
    together = torch.cat([split.train.pixels, split.validation.pixels]).flatten(1)
    assert len(torch.unique(together, dim=0)) == 30
    assert float(together.max()) <= 1.0
    again = load_fashion(files, validation=10, seed=3)
    assert torch.equal(split.validation.pixels, again.validation.pixels)


def test_a_missing_data_set_is_said_with_the_command_that_installs_it(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="apt-get install dataset-fashion-mnist"):
        load_fashion(tmp_path, validation=10, seed=1)


@pytest.mark.parametrize("damage", ["cut", "not gzip", "other kind"])
def test_a_damaged_file_is_named(files: Path, damage: str) -> None:
    path = files / "train-images-idx3-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(
        {
            "cut": gzip.compress(content[:-1]),
            "not gzip": b"<html>",
            "other kind": gzip.compress(b"\0\0\x0d\x03" + content[4:]),
        }[damage]
    )
    with pytest.raises(DataMissing, match=r"train-images-idx3-ubyte\.gz"):
        load_fashion(files, validation=10, seed=1)
