"""F1, F2, F4, F5: GPUs as a stub of the NVML library shows them, read through the real pynvml."""

from pathlib import Path
from typing import Any

import pytest

from slimscale.devices.nvml import RETRY_SECONDS, Nvml, wanted_devices
from tests.support.nvml_stub import (
    DRIVER_NOT_LOADED,
    GPU,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNINITIALIZED,
    build,
    read_each,
)

SECOND = {name.replace("gpu0", "gpu1"): value for name, value in GPU.items()} | {
    "gpu1.uuid": "GPU-b"
}


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


def test_memory_utilisation_and_power_of_a_gpu(library: Path, tmp_path: Path) -> None:
    ([reading],), _ = read_each(library, tmp_path, [(0, GPU)])
    assert reading == {
        "device": "GPU-a",
        "kind": "gpu",
        "utilisation": 0.37,
        "memory_total_bytes": 8_000_000_000,
        "memory_free_bytes": 6_000_000_000,
        "power_watts": 71.5,
        "lost": False,
    }


def test_memory_that_others_take_shows_in_the_next_reading(library: Path, tmp_path: Path) -> None:
    full = {**GPU, "gpu0.free": 1_000}
    readings, _ = read_each(library, tmp_path, [(0, GPU), (1, full)])
    assert [gpu["memory_free_bytes"] for (gpu,) in readings] == [6_000_000_000, 1_000]


def test_without_a_driver_there_is_no_gpu_one_line_of_log_and_no_fault_at_the_end(
    tmp_path: Path,
) -> None:
    """F1: the child closes twice, and ends well."""
    readings, log = read_each(None, tmp_path, [(0, {}), (1, {}), (1, {}), (RETRY_SECONDS, {})])
    assert readings == [[], [], [], []]
    assert len(log) == 1
    assert "LibraryNotFound" in log[0]


def test_a_driver_that_is_gone_when_it_is_shut_down_is_no_second_fault(
    library: Path, tmp_path: Path
) -> None:
    """F1: the child closes at its end, and ends well."""
    ([reading],), _ = read_each(library, tmp_path, [(0, {**GPU, "shutdown": UNINITIALIZED})])
    assert reading["device"] == "GPU-a"


def test_a_driver_that_comes_later_is_found_after_the_pause(library: Path, tmp_path: Path) -> None:
    absent = {**GPU, "init": DRIVER_NOT_LOADED}
    readings, log = read_each(
        library, tmp_path, [(0, absent), (1, GPU), (RETRY_SECONDS - 2, GPU), (2, GPU)]
    )
    assert [len(gpus) for gpus in readings] == [0, 0, 0, 1]
    assert "DriverNotLoaded" in log[0]


def test_without_the_python_package_there_is_no_gpu() -> None:
    def load() -> Any:
        raise ImportError

    nvml = Nvml(now=lambda: 0.0, load=load)
    assert nvml.read() == ()
    nvml.close()


def test_a_function_that_the_driver_lacks_makes_one_figure_unknown(tmp_path: Path) -> None:
    """F1: FunctionNotFound."""
    old = build(tmp_path / "old", "-DWITHOUT_UTILISATION")
    ([reading],), _ = read_each(old, tmp_path, [(0, GPU)])
    assert reading["utilisation"] is None
    assert reading["memory_free_bytes"] == 6_000_000_000


def test_of_a_mig_instance_memory_is_known_and_utilisation_is_not_0(
    library: Path, tmp_path: Path
) -> None:
    """F2."""
    instance = {
        "gpu0.uuid": "MIG-1",
        "gpu0.total": 5_000,
        "gpu0.free": 4_000,
        "gpu0.utilisation.error": NOT_SUPPORTED,
        "gpu0.power.error": NOT_SUPPORTED,
    }
    ([reading],), log = read_each(library, tmp_path, [(0, instance)], wanted=("MIG-1",))
    assert reading["kind"] == "mig"
    assert reading["memory_free_bytes"] == 4_000
    assert reading["utilisation"] is None
    assert reading["power_watts"] is None
    assert reading["lost"] is False
    assert log == []


def test_a_parent_gpu_that_may_not_be_asked_is_unknown_not_lost(
    library: Path, tmp_path: Path
) -> None:
    """F2: no permission on the parent of a MIG instance."""
    closed = {**GPU, "gpu0.memory.error": NO_PERMISSION, "gpu0.utilisation.error": NO_PERMISSION}
    ([reading],), _ = read_each(library, tmp_path, [(0, closed)])
    assert (reading["memory_free_bytes"], reading["utilisation"]) == (None, None)
    assert reading["lost"] is False


@pytest.mark.parametrize("wanted", [("1",), ("GPU-b",)])
def test_only_the_gpu_of_this_container_is_looked_at(
    library: Path, tmp_path: Path, wanted: tuple[str, ...]
) -> None:
    both = {"devices": 2, **GPU, **SECOND}
    ([reading],), _ = read_each(library, tmp_path, [(0, both)], wanted=wanted)
    assert reading["device"] == "GPU-b"


def test_one_lost_gpu_of_two_leaves_the_other_s_figures(library: Path, tmp_path: Path) -> None:
    """F4: and the lost one has no figure that would read as idle."""
    both = {"devices": 2, **GPU, **SECOND}
    lost = {**both, "gpu1.error": GPU_IS_LOST}
    readings, log = read_each(library, tmp_path, [(0, both), (1, lost), (1, lost), (20, both)])
    assert [[gpu["lost"] for gpu in gpus] for gpus in readings] == [
        [False, False], [False, True], [False, True], [False, False],
    ]  # fmt: skip
    other, gone = readings[1]
    assert other["utilisation"] == 0.37
    assert gone["device"] == "GPU-b"
    assert gone["utilisation"] is None
    assert gone["memory_free_bytes"] is None
    assert len([line for line in log if "GpuIsLost" in line]) == 1
    assert "there again" in log[-1]


def test_a_container_that_loses_its_gpus_says_lost_and_recovers_with_a_new_start(
    library: Path, tmp_path: Path
) -> None:
    """F4: Unknown for all after some calls; the stub answers again once it is started anew."""
    failing = {**GPU, "unknown_after": 10}
    steps: list[tuple[float, Any]] = [(1, failing)] * 4
    readings, _ = read_each(library, tmp_path, steps)
    assert [gpu["lost"] for (gpu,) in readings] == [False, False, True, False]


def test_a_gpu_stays_lost_while_the_driver_can_not_be_started(
    library: Path, tmp_path: Path
) -> None:
    gone = {**GPU, "init": DRIVER_NOT_LOADED, "gpu0.error": GPU_IS_LOST}
    readings, _ = read_each(library, tmp_path, [(0, GPU), (1, gone), (1, gone), (60, GPU)])
    assert [gpu["lost"] for (gpu,) in readings] == [False, True, True, False]
    assert readings[2][0]["device"] == "GPU-a"


def test_processes_are_never_asked_for(library: Path, tmp_path: Path) -> None:
    """F5: the stub has no function that lists them, and nothing is missing."""
    ([reading],), log = read_each(library, tmp_path, [(0, GPU)])
    assert reading["memory_free_bytes"] is not None
    assert log == []


def test_the_first_setting_that_names_a_device_counts() -> None:
    assert wanted_devices(None, "", "GPU-a, GPU-b", "all") == ("GPU-a", "GPU-b")
    assert wanted_devices(None, "all", None) == ()
    assert wanted_devices("void", "MIG-1") == ("MIG-1",)
