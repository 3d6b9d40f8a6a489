"""The model server as a process of its own: killed and started again, and with a GPU that gets lost."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.model_server_process import started
from tests.support.nvml_stub import GPU, GPU_IS_LOST, build, environment, settings

pytestmark = [pytest.mark.component, pytest.mark.slow]


def test_a_killed_server_starts_again_at_the_same_address_and_a_term_ends_it_well(
    tmp_path: Path,
) -> None:
    with started(tmp_path, dict(os.environ)) as process:
        process.wait("/v2/health/ready", 200)
        assert process.infer(2.0) == [4.0, 4.0]
        process.end(signal.SIGKILL)
        process.start()
        process.wait("/v2/health/ready", 200)
        assert process.infer(3.0) == [6.0, 6.0]
        assert process.end(signal.SIGTERM) == 0


def test_the_memory_of_a_gpu_is_served_and_a_lost_one_takes_no_traffic_until_it_is_back(
    tmp_path: Path,
) -> None:
    """F4: the library is the stub, everything else is real."""
    stub = tmp_path / "stub.txt"
    stub.write_text(settings(GPU))
    env = environment(build(tmp_path / "nvml"), stub) | {"NVIDIA_VISIBLE_DEVICES": "GPU-a"}
    with started(tmp_path, env) as process:
        process.wait("/v2/health/ready", 200)
        device = json.loads(process.get("/device")[1])
        assert device["memory_free_bytes"] == 6_000_000_000
        assert device["utilisation"] == 0.37
        stub.write_text(settings({**GPU, "gpu0.error": GPU_IS_LOST}))
        assert b"GPU-a is lost" in process.wait("/v2/health/ready", 503)
        page = process.get("/metrics", port=process.status_port)[1].decode()
        assert 'slimscale_device_lost{device="GPU-a",kind="gpu"} 1.0' in page
        assert "slimscale_device_utilisation{" not in page
        assert process.get("/v2/health/live")[0] == 200
        stub.write_text(settings(GPU))
        process.wait("/v2/health/ready", 200)


def test_a_configuration_that_is_missing_or_wrong_ends_with_its_name(tmp_path: Path) -> None:
    for content in (None, '{"service": "x"}'):
        file = tmp_path / "modelserver.json"
        if content is not None:
            file.write_text(content)
        ended = subprocess.run(
            [sys.executable, "-m", "slimscale.serving.modelserver"],
            env=dict(os.environ) | {"SLIMSCALE_CONFIG": str(file)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert ended.returncode == 1
        assert str(file) in ended.stderr
        assert content is None or "widths" in ended.stderr
        assert "Traceback" not in ended.stderr
