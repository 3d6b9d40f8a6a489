"""Control groups as both kernels' formats want them, on a folder that stands for /sys/fs/cgroup."""

from pathlib import Path

import pytest

from slimscale.bench.native.cgroups import CpuGroup, quota_microseconds
from slimscale.bench.native.errors import MachineBusy
from slimscale.bench.native.machine import alone, read_machine, steal_seconds


def empty(folder: Path) -> None:
    """A kernel's group can be removed with its files in it."""
    for file in folder.iterdir():
        file.unlink()


def test_v1_gets_quota_and_period_and_both_its_hierarchies_the_process(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpuacct").mkdir()
    with CpuGroup("pool", root=tmp_path) as group:
        group.set_quota(1.5)
        group.add(42)
        cpu, account = tmp_path / "cpu" / "pool", tmp_path / "cpuacct" / "pool"
        assert (cpu / "cpu.cfs_quota_us").read_text() == "150000"
        assert (cpu / "cpu.cfs_period_us").read_text() == "100000"
        assert (cpu / "cgroup.procs").read_text() == (account / "cgroup.procs").read_text() == "42"
        group.set_quota(None)
        assert (cpu / "cpu.cfs_quota_us").read_text() == "-1"
        (cpu / "cpu.stat").write_text("nr_periods 9\nnr_throttled 3\nthrottled_time 250000000\n")
        (account / "cpuacct.usage").write_text("1500000000\n")
        seen = group.figures()
        assert (seen.usage_seconds, seen.periods, seen.throttled_periods) == (1.5, 9, 3)
        assert seen.throttled_seconds == pytest.approx(0.25)
        empty(cpu)
        empty(account)
    assert not cpu.exists()
    assert not account.exists()


def test_v2_gets_its_one_file_and_the_controller_is_switched_on(tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").write_text("memory")
    with CpuGroup("pool", root=tmp_path) as group:
        group.set_quota(0.5)
        folder = tmp_path / "pool"
        assert (folder / "cpu.max").read_text() == "50000 100000"
        assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"
        group.set_quota(None)
        assert (folder / "cpu.max").read_text() == "max 100000"
        (folder / "cpu.stat").write_text("usage_usec 2500000\nnr_periods 1\nnr_throttled 0\n")
        assert group.figures().usage_seconds == pytest.approx(2.5)
        empty(folder)


def test_a_quota_below_the_kernels_least_is_raised_to_it_and_none_stays_none() -> None:
    assert quota_microseconds(0.001) == 1000
    assert quota_microseconds(None) is None
    with pytest.raises(ValueError, match="cores above 0"):
        quota_microseconds(0.0)


def test_two_cannot_measure_at_once(tmp_path: Path) -> None:
    lock = tmp_path / "measuring"
    with alone(lock), pytest.raises(MachineBusy, match="somebody else measures"), alone(lock):
        pass
    assert not lock.exists()


def test_the_machine_is_read_from_proc(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(
        "processor : 0\nmodel name : Fast CPU\nflags : fpu hypervisor\n\nmodel name : Other\n"
    )
    (tmp_path / "proc" / "stat").write_text("cpu  10 20 30 40 50 60 70 200 0 0\ncpu0 1 2 3 4\n")
    machine = read_machine(tmp_path)
    assert (machine.cpu_model, machine.hypervisor) == ("Fast CPU", True)
    assert steal_seconds(tmp_path) == pytest.approx(2.0, rel=1.0)
