"""Where the model server's thread count comes from, and what its cgroup says of CPU and memory."""

from pathlib import Path

import pytest

from slimscale.inpod.recorder import Recorder
from slimscale.serving.modelserver.cpu_device import CpuDevice
from slimscale.serving.modelserver.threads import ThreadSource


@pytest.fixture
def threads_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SLIMSCALE_THREADS", raising=False)
    path = tmp_path / "threads"
    monkeypatch.setenv("SLIMSCALE_THREADS_FILE", str(path))
    return path


def source(cores: float = 2.5, most: int = 8) -> ThreadSource:
    return ThreadSource(Recorder(), cores=lambda: cores, most=lambda: most)


def test_configuration_then_annotation_then_variable_then_quota(
    threads_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source().wanted() == 2
    assert source(cores=0.3).wanted() == 1
    monkeypatch.setenv("SLIMSCALE_THREADS", "3")
    assert source().wanted() == 3
    threads_file.write_text("5\n")
    assert source().wanted() == 5
    fixed = source()
    fixed.fixed = 7
    assert fixed.wanted() == 7


def test_never_more_threads_than_cpus_and_never_none(threads_file: Path) -> None:
    threads_file.write_text("500")
    assert source(most=4).wanted() == 4
    threads_file.write_text("0")
    assert source(cores=3.0).wanted() == 3
    threads_file.write_text("many")
    assert source(cores=3.0).wanted() == 3


def test_without_an_annotation_a_resized_quota_is_followed(threads_file: Path) -> None:
    assert not threads_file.exists()
    cores = [1.0]
    follows = ThreadSource(Recorder(), cores=lambda: cores[0], most=lambda: 8)
    assert follows.wanted() == 1
    cores[0] = 4.0
    assert follows.wanted() == 4


# ---- the cgroup


def v2(root: Path, *, limit: str = "1000", current: int = 700, cache: int = 300) -> CpuDevice:
    group = root / "sys/fs/cgroup"
    group.mkdir(parents=True, exist_ok=True)
    proc = root / "proc/self"
    proc.mkdir(parents=True, exist_ok=True)
    (proc / "mountinfo").write_text("30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n")
    (proc / "cgroup").write_text("0::/\n")
    (root / "proc/meminfo").write_text("MemTotal: 8 kB\nMemFree: 1 kB\nMemAvailable: 4 kB\n")
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{current}\n")
    (group / "memory.stat").write_text(f"anon 5\ninactive_file {cache}\n")
    (group / "cpu.max").write_text("50000 100000\n")
    (group / "cpu.stat").write_text("usage_usec 1000000\n")
    return CpuDevice(now=lambda: 0.0, root=root)


def test_memory_that_the_kernel_can_drop_counts_as_free(tmp_path: Path) -> None:
    reading = v2(tmp_path).read()
    assert reading.memory_total_bytes == 1000
    assert reading.memory_free_bytes == 600


def test_without_a_limit_the_node_s_memory_is_what_can_be_had(tmp_path: Path) -> None:
    reading = v2(tmp_path, limit="max").read()
    assert (reading.memory_total_bytes, reading.memory_free_bytes) == (8192, 4096)


def test_a_node_with_less_memory_than_the_limit_goes_before_it(tmp_path: Path) -> None:
    reading = v2(tmp_path, limit="100000", current=0).read()
    assert (reading.memory_total_bytes, reading.memory_free_bytes) == (8192, 4096)


def test_memory_by_version_1(tmp_path: Path) -> None:
    v2(tmp_path)
    group = tmp_path / "sys/fs/cgroup/memory/pod"
    group.mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text(
        "30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    )
    (tmp_path / "proc/self/cgroup").write_text("5:memory:/pod\n")
    (group / "memory.limit_in_bytes").write_text("2000")
    (group / "memory.usage_in_bytes").write_text("1500")
    (group / "memory.stat").write_text("total_inactive_file 500\n")
    top = group.parent
    (top / "memory.limit_in_bytes").write_text("9223372036854771712")
    (top / "memory.usage_in_bytes").write_text("1")
    reading = CpuDevice(now=lambda: 0.0, root=tmp_path).read()
    assert (reading.memory_total_bytes, reading.memory_free_bytes) == (2000, 1000)


def test_utilisation_is_cpu_time_over_the_quota_and_unknown_at_first(tmp_path: Path) -> None:
    v2(tmp_path)
    clock = [0.0]
    device = CpuDevice(now=lambda: clock[0], root=tmp_path)
    stat = tmp_path / "sys/fs/cgroup/cpu.stat"
    assert device.read().utilisation is None
    clock[0] = 2.0
    stat.write_text("usage_usec 1500000\n")
    assert device.read().utilisation == pytest.approx(0.5)
    clock[0] = 2.1  # too short a stretch: the last one stands
    stat.write_text("usage_usec 1600000\n")
    assert device.read().utilisation == pytest.approx(0.5)
    clock[0] = 4.0
    stat.write_text("usage_usec 9000000\n")
    assert device.read().utilisation == 1.0


def test_where_the_kernel_says_nothing_all_is_unknown_and_nothing_is_0(tmp_path: Path) -> None:
    reading = CpuDevice(now=lambda: 0.0, root=tmp_path).read()
    assert (reading.utilisation, reading.memory_total_bytes, reading.memory_free_bytes) == (
        None, None, None,
    )  # fmt: skip
