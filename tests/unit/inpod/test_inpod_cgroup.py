from pathlib import Path

import pytest

from slimscale.inpod.cgroup import (
    CgroupCpu,
    affinity_count,
    cpu_count_available,
    parse_cgroup_paths,
    parse_mounts,
    parse_v2_quota,
    quota_cores_v1,
    read_cgroup,
)

V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw\n"
V2_STAT = "usage_usec 1500000\nuser_usec 1\nnr_periods 40\nnr_throttled 8\nthrottled_usec 250000\n"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("200000 100000\n", 2.0),
        ("150000 100000\n", 1.5),
        ("10000", 0.1),
        ("max 100000\n", None),
        ("", None),
        ("x y", None),
        ("100 0", None),
    ],
)
def test_the_v2_quota_in_cores(text: str, cores: float | None) -> None:
    assert parse_v2_quota(text) == cores


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [("-1\n", "100000\n", None), ("50000\n", "100000\n", 0.5), ("", "", None)],
)
def test_the_v1_quota_in_cores(quota: str, period: str, cores: float | None) -> None:
    assert quota_cores_v1(quota, period) == cores


def test_v2_in_a_container_with_its_own_namespace(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "300000 100000\n",
            "sys/fs/cgroup/cpu.stat": V2_STAT,
        },
    )
    assert read_cgroup(tmp_path) == CgroupCpu(3.0, 1.5, 40, 8, 0.25)


def test_v2_takes_the_tightest_quota_on_the_way_up(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/cgroup": "0::/pod/app\n",
            "sys/fs/cgroup/cpu.stat": "usage_usec 9\n",
            "sys/fs/cgroup/pod/cpu.max": "100000 100000\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
            "sys/fs/cgroup/pod/app/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/pod/app/cpu.stat": V2_STAT,
        },
    )
    assert read_cgroup(tmp_path) == CgroupCpu(1.0, 1.5, 40, 8, 0.25)


def test_the_hosts_path_that_is_not_mounted_falls_back_to_the_mount(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/cgroup": "0::/kubepods.slice/pod1/../../x\n",
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/cpu.stat": V2_STAT,
        },
    )
    assert read_cgroup(tmp_path).quota_cores == 0.5


def test_v1_with_the_controllers_together_and_a_container_relative_path(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct"
    write(
        tmp_path,
        {
            "proc/self/mountinfo": (
                "31 23 0:27 /kubepods/pod1/app /sys/fs/cgroup/cpu,cpuacct ro shared:9 - "
                "cgroup cgroup rw,cpu,cpuacct\n"
            ),
            "proc/self/cgroup": "4:cpu,cpuacct:/kubepods/pod1/app\n",
            f"{folder}/cpu.cfs_quota_us": "250000\n",
            f"{folder}/cpu.cfs_period_us": "100000\n",
            f"{folder}/cpu.stat": "nr_periods 10\nnr_throttled 2\nthrottled_time 3000000000\n",
            f"{folder}/cpuacct.usage": "7000000000\n",
        },
    )
    found = read_cgroup(tmp_path)
    assert found == CgroupCpu(2.5, 7.0, 10, 2, 3.0)


def test_hybrid_reads_the_cpu_controller_where_it_is(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/mountinfo": (
                "30 23 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
                "31 23 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                "32 23 0:28 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
            ),
            "proc/self/cgroup": "2:cpuacct:/b\n1:cpu:/a\n0::/u\n",
            "sys/fs/cgroup/unified/u/cpu.stat": "usage_usec 1\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/a/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
            "sys/fs/cgroup/cpuacct/b/cpuacct.usage": "2000000000\n",
        },
    )
    assert read_cgroup(tmp_path) == CgroupCpu(None, 2.0, 0, 0, 0.0)


def test_nothing_mounted_is_unknown_and_not_zero(tmp_path: Path) -> None:
    assert read_cgroup(tmp_path) == CgroupCpu()
    assert cpu_count_available(tmp_path) == affinity_count()


def test_available_cpus_are_the_lesser_of_quota_and_affinity(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/cpu.max": "25000 100000\n",
        },
    )
    assert cpu_count_available(tmp_path) == 0.25


def test_broken_lines_are_passed_over() -> None:
    assert parse_mounts("garbage\n1 2 3 / /x\n1 2 3 / - cgroup2\n - cgroup\n") == []
    assert parse_cgroup_paths("garbage\n0:\n3:cpu\n4:cpu:relative\n") == {}


def test_a_mount_point_with_a_blank_is_read() -> None:
    [mount] = parse_mounts("30 23 0:26 / /my\\040cgroup rw - cgroup2 cgroup rw")
    assert mount.point == "/my cgroup"
