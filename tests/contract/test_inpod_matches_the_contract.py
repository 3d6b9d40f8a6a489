"""inpod imports nothing of the rest: here its copies of names are held against the originals."""

import subprocess
import sys
from pathlib import Path

from slimscale.act.thread_env import OPENBLAS_MAX_THREADS
from slimscale.api import names
from slimscale.domain.contract import MetricName
from slimscale.inpod import adapters, exposition, server, threads_file
from slimscale.inpod.cgroup import CgroupCpu
from slimscale.inpod.recorder import Recorder
from slimscale.observe.exposition import read_page


def test_the_metric_names_are_the_contracts() -> None:
    names_of_contract = {
        value for name, value in vars(MetricName).items() if name.isupper() and value
    }
    assert names_of_contract == exposition.METRIC_NAMES


def test_the_document_names_each_metric_with_its_type() -> None:
    document = (Path(__file__).parents[2] / "docs" / "contract.md").read_text()
    for name, (kind, _) in exposition.KIND_AND_HELP.items():
        assert f"| `slimscale_{name}` | {kind} |" in document


def test_file_variables_and_port_are_the_operators() -> None:
    assert threads_file.THREADS_FILE == names.THREADS_FILE
    assert threads_file.THREADS_FILE_ENV == names.THREADS_FILE_ENV
    assert server.DEFAULT_PORT == names.DEFAULT_METRICS_PORT
    assert adapters.OPENBLAS_MAX_THREADS == OPENBLAS_MAX_THREADS


def test_the_operator_reads_back_what_inpod_serves() -> None:
    recorder = Recorder()
    recorder.threads_applied = 6
    recorder.outstanding = 11
    for milliseconds in (1, 2, 3):
        recorder.task(milliseconds * 1e-3, 0.5e-3, 0.25e-3)
        recorder.dispatch(4e-6)
    recorder.value_ignored("too-large")
    text = exposition.render(
        recorder.figures(),
        CgroupCpu(2.5, 100.0, 50, 5, 1.5),
        start_seconds=1700000000.25,
        ignored=recorder.ignored_thread_values,
    )
    sample = read_page(text, prefix="slimscale", pod_uid="u", now_seconds=1700000100.0)
    assert sample.threads_applied == 6
    assert sample.tasks_total == 3
    assert sample.tasks_outstanding == 11
    assert sample.task is not None
    assert sample.task.count == 3
    assert sample.task.sum_seconds == 0.006
    assert sample.dispatch is not None
    assert sample.dispatch.count == 3
    assert sample.task_cpu_seconds_total == 1.5e-3
    assert sample.task_runqueue_seconds_total == 0.75e-3
    assert sample.cpu_quota_cores == 2.5
    assert sample.cpu_usage_seconds_total == 100.0
    assert (sample.cpu_periods_total, sample.cpu_throttled_periods_total) == (50, 5)
    assert sample.cpu_throttled_seconds_total == 1.5
    assert sample.process_start_seconds == 1700000000.25


def test_what_is_unknown_is_not_on_the_page() -> None:
    text = exposition.render(Recorder().figures(), CgroupCpu(), start_seconds=1.0)
    sample = read_page(text, prefix="slimscale", pod_uid="u", now_seconds=2.0)
    assert sample.cpu_quota_cores is None
    assert sample.threads_applied is None
    assert sample.task_cpu_seconds_total is None


def test_importing_inpod_loads_the_standard_library_alone() -> None:
    program = (
        "import sys; before = set(sys.modules); from slimscale import inpod;"
        "inpod.ThreadPool, inpod.start, inpod.serve, inpod.follow, inpod.apply_to_libraries;"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before};"
        "assert callable(inpod.follow);"
        "print(*sorted(new - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.split() == ["slimscale"]
