"""Our model server over HTTP: loading, warming, errors, what stays untouched meanwhile."""

import asyncio
import gc
import json
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from pydantic import ValidationError

from slimscale.devices.reading import DeviceReading
from slimscale.observe.exposition import read_page
from slimscale.serving.modelserver import process as process_module
from slimscale.serving.modelserver import repository, runtime
from slimscale.serving.modelserver.device import LOST_SECONDS
from slimscale.serving.modelserver.settings import ModelServerSettings
from tests.support.model_servers import NARROW, WIDE, FakeDevices, Gate, with_model_server
from tests.support.onnx_models import write_graph
from tests.support.sidecars import until


class Sessions:
    """Keeps what each onnxruntime session was made with and ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Any] = []
        self.rows: list[int] = []
        real, outer = onnxruntime.InferenceSession, self

        class Session(real):  # type: ignore[misc, valid-type]
            def __init__(self, *args: Any, sess_options: Any, **more: Any) -> None:
                outer.made.append(sess_options)
                super().__init__(*args, sess_options=sess_options, **more)

            def run(self, names: Any, feed: dict[str, Any]) -> Any:
                outer.rows.append(len(next(iter(feed.values()))))
                return super().run(names, feed)

        monkeypatch.setattr(onnxruntime, "InferenceSession", Session)


async def test_ready_only_when_the_first_models_are_loaded_and_every_batch_size_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(monkeypatch)
    may_warm = threading.Event()

    def warm(*args: Any) -> None:
        assert may_warm.wait(20)
        runtime.warm(*args)

    monkeypatch.setattr(repository, "warm", warm)
    async with with_model_server(tmp_path, ready=False) as (process, asks):
        await until(lambda: len(sessions.made) == 1)
        assert await asks.status("/v2/health/ready") == 503
        assert await asks.status(f"/v2/models/{WIDE}/ready") == 503
        assert await asks.status("/v2/health/live") == 200
        may_warm.set()
        await until(lambda: process.ready() is None)
        assert sessions.rows == [1, 2, 4]
        assert await asks.status("/v2/health/ready") == 200
        assert await asks.status(f"/v2/models/{WIDE}/ready") == 200
        assert await asks.status(f"/v2/models/{NARROW}/ready") == 503


async def test_a_model_is_loaded_on_demand_warmed_and_unloaded(tmp_path: Path) -> None:
    async with with_model_server(tmp_path) as (_, asks):
        refused = await asks.infer([1.0], NARROW)
        assert refused.status == 503
        assert "is not loaded" in asks.error(refused)
        assert (await asks.load(NARROW)).status == 200
        assert asks.values(await asks.infer([1.0, 2.0], NARROW)) == [2.0, 4.0]
        assert (await asks.get(f"/v2/models/{NARROW}"))["inputs"] == [
            {"name": "image", "datatype": "FP32", "shape": [-1, 2]}
        ]
        assert (await asks.unload(NARROW)).status == 200
        assert (await asks.infer([1.0], NARROW)).status == 503
        assert await asks.status(f"/v2/models/{NARROW}") == 503
        assert asks.values(await asks.infer([3.0])) == [6.0]


async def test_as_many_instances_as_asked_run_at_once_and_fewer_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    async with with_model_server(tmp_path) as (process, asks):
        assert (await asks.load(WIDE, 2)).status == 200
        held = [asyncio.create_task(asks.infer([Gate.HELD])) for _ in range(3)]
        await until(lambda: gate.inside == 2)
        await until(lambda: process.repository.models[WIDE].waiting == 1)
        gate.open.set()
        for task in held:
            assert asks.values(await task) == [2 * Gate.HELD]
        assert (await asks.load(WIDE, 1)).status == 200
        index = json.loads((await asks.raw(b"POST", "/v2/repository/index")).body)
        assert {entry["name"]: entry["instances"] for entry in index} == {NARROW: 0, WIDE: 1}


async def test_the_loop_answers_while_a_batch_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    async with with_model_server(tmp_path) as (_, asks):
        held = asyncio.create_task(asks.infer([Gate.HELD]))
        await until(lambda: gate.inside == 1)
        assert await asks.status("/v2/health/live") == 200
        assert (await asks.load(NARROW)).status == 200
        assert asks.values(await asks.infer([1.0], NARROW)) == [2.0]
        gate.open.set()
        assert asks.values(await held) == [2 * Gate.HELD]


async def test_unloading_lets_the_running_batch_end_and_tells_who_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    async with with_model_server(tmp_path) as (process, asks):
        held = asyncio.create_task(asks.infer([Gate.HELD]))
        await until(lambda: gate.inside == 1)
        waiting = asyncio.create_task(asks.infer([1.0]))
        await until(lambda: process.repository.models[WIDE].waiting == 1)
        assert (await asks.unload(WIDE)).status == 200
        assert (await waiting).status == 503
        gate.open.set()
        assert asks.values(await held) == [2 * Gate.HELD]


async def test_an_unloaded_session_is_gone_at_once_without_the_garbage_collector(
    tmp_path: Path,
) -> None:
    """D7: the collector looks seldom, and a session may hold much memory."""
    gc.disable()
    try:
        async with with_model_server(tmp_path) as (process, asks):
            await asks.infer([1.0])
            instance = weakref.ref(process.repository.models[WIDE].instances[0])
            assert (await asks.unload(WIDE)).status == 200
            await until(lambda: instance() is None)
    finally:
        gc.enable()


async def test_an_instance_whose_caller_has_gone_is_not_used_before_its_batch_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D1: and it is used again after."""
    gate = Gate(monkeypatch)
    async with with_model_server(tmp_path) as (process, asks):
        gone = asyncio.create_task(asks.infer([Gate.HELD]))
        await until(lambda: gate.inside == 1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        after = asyncio.create_task(asks.infer([2.0]))
        await until(lambda: process.repository.models[WIDE].waiting == 1)
        assert gate.inside == 1
        gate.open.set()
        assert asks.values(await after) == [4.0]


async def test_sessions_get_the_thread_count_and_do_not_spin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(monkeypatch)
    async with with_model_server(tmp_path):
        (options,) = sessions.made
        assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
        assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


async def test_a_new_thread_count_rebuilds_sessions_and_drops_no_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, sessions = Gate(monkeypatch), Sessions(monkeypatch)
    file = tmp_path / "threads"
    monkeypatch.setenv("SLIMSCALE_THREADS_FILE", str(file))
    monkeypatch.setattr("slimscale.serving.modelserver.process.THREADS_SECONDS", 0.01)
    file.write_text("1")
    async with with_model_server(tmp_path, threads=None) as (process, asks):
        monkeypatch.setattr(process._source, "_most", lambda: 4)
        monkeypatch.setattr(process._source._follower, "_poll_seconds", 0.0)
        assert "slimscale_threads_applied 1.0" in await asks.metrics()
        held = asyncio.create_task(asks.infer([Gate.HELD]))
        await until(lambda: gate.inside == 1)
        file.write_text("3")
        await until(lambda: process.repository.threads == 3)
        assert sessions.made[-1].intra_op_num_threads == 3
        assert asks.values(await asks.infer([5.0])) == [10.0]
        assert gate.inside == 1, "the old session is still at its batch"
        gate.open.set()
        assert asks.values(await held) == [2 * Gate.HELD]
        assert "slimscale_threads_applied 3.0" in await asks.metrics()


async def test_a_thread_count_that_can_not_be_applied_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_model_server(tmp_path) as (process, asks):
        (tmp_path / "models" / WIDE / "model.onnx").unlink()
        process._source.fixed = 2
        monkeypatch.setattr(process._source, "_most", lambda: 4)
        failed = process.metrics.rebuilds.labels("failed")
        await until(lambda: failed._value.get() > 0)
        assert "slimscale_threads_applied 1.0" in await asks.metrics()
        assert asks.values(await asks.infer([5.0])) == [10.0]


@pytest.mark.parametrize(
    ("model", "damage", "status", "message"),
    [
        (NARROW, "remove", 404, "is missing"),
        (NARROW, "garble", 400, "can't be loaded"),
        ("others", "none", 404, "unknown; known: digits-w050, digits-w100"),
        ("..%2Fsecrets", "none", 404, "unknown"),
    ],
)
async def test_a_model_that_can_not_be_loaded_is_said_with_the_reason(
    tmp_path: Path, model: str, damage: str, status: int, message: str
) -> None:
    async with with_model_server(tmp_path) as (_, asks):
        path = tmp_path / "models" / NARROW / "model.onnx"
        if damage == "remove":
            path.unlink()
        elif damage == "garble":
            path.write_bytes(b"no graph at all")
        response = await asks.load(model)
        assert response.status == status
        assert message in asks.error(response)
        assert asks.values(await asks.infer([1.0])) == [2.0], "others are not touched"
        if model == NARROW:
            index = json.loads((await asks.raw(b"POST", "/v2/repository/index")).body)
            assert message in next(e["reason"] for e in index if e["name"] == NARROW)


async def test_a_first_model_that_fails_keeps_the_pod_unready_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D11."""
    monkeypatch.setattr(process_module, "_FIRST_RETRY_SECONDS", 0.005)
    async with with_model_server(tmp_path, ready=False, graphs=False) as (process, asks):
        await until(lambda: "is missing" in str(process.ready()))
        response = await asks.raw(b"GET", "/v2/health/ready")
        assert response.status == 503
        assert "digits-w100" in asks.error(response)
        write_graph(tmp_path / "models", WIDE)
        await until(lambda: process.ready() is None)


async def test_a_row_that_comes_out_as_nan_leaves_its_neighbours_untouched(
    tmp_path: Path,
) -> None:
    """D8: null in JSON, its bits in binary; counted."""
    async with with_model_server(tmp_path) as (_, asks):
        write_graph(tmp_path / "models", NARROW, "log")
        assert (await asks.load(NARROW)).status == 200
        binary = asks.values(await asks.infer([1.0, -1.0, 1.0], NARROW))
        assert (binary[0], binary[2]) == (0.0, 0.0)
        assert np.isnan(binary[1])
        document = {
            "inputs": [
                {"name": "image", "datatype": "FP32", "shape": [2, 2], "data": [1, 1, -1, 1]}
            ]
        }
        path = f"/v2/models/{NARROW}/infer"
        answer = await asks.raw(b"POST", path, json.dumps(document).encode())
        assert json.loads(answer.body)["outputs"][0]["data"] == [0.0, 0.0, None, 0.0]
        page = await asks.metrics()
        assert 'slimscale_modelserver_nonfinite_rows_total{model="digits-w050"} 2.0' in page


async def test_wrong_requests_are_refused_by_name(tmp_path: Path) -> None:
    async with with_model_server(tmp_path) as (_, asks):
        for path, body, status, message in (
            (f"/v2/models/{WIDE}/infer", b"{", 400, "not valid JSON"),
            (f"/v2/models/{WIDE}/infer", b'{"inputs":[]}', 400, "inputs"),
            ("/v2/models/nobody/infer", b"{}", 404, "unknown"),
            (f"/v2/models/{WIDE}/versions/7/infer", b"{}", 404, "there is only 1"),
            (f"/v2/repository/models/{WIDE}/load", b"[]", 400, "not a JSON object"),
            (
                f"/v2/repository/models/{WIDE}/load",
                b'{"parameters":{"instances":0}}',
                400,
                "from 1 to 16",
            ),
            ("/v2/health/live", b"", 405, "GET"),
            ("/elsewhere", b"", 404, "no such path"),
        ):
            response = await asks.raw(b"POST", path, body)
            assert response.status == status, path
            assert message in asks.error(response)
        assert 'model="nobody"' not in await asks.metrics()


async def test_nothing_can_be_changed_through_the_port_that_other_pods_reach(
    tmp_path: Path,
) -> None:
    """H5."""
    async with with_model_server(tmp_path) as (_, asks):
        for path in (f"/v2/repository/models/{WIDE}/unload", "/metrics", "/v2/health/ready"):
            response = await asks.raw(b"POST", path, status=True)
            assert response.status in (404, 405)
        assert (await asks.raw(b"GET", f"/v2/models/{WIDE}/ready", status=True)).status == 404
        assert await asks.status(f"/v2/models/{WIDE}/ready") == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org"])  # noqa: S104
def test_the_port_that_loads_models_is_never_opened_to_other_pods(host: str) -> None:
    """H5."""
    with pytest.raises(ValidationError, match="not a loopback address"):
        ModelServerSettings(modelserver_host=host)


async def test_a_changed_configuration_is_taken_up_and_a_bad_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D11: and while one more model loads, or fails to, those that are there serve on."""
    monkeypatch.setattr(process_module, "_FIRST_RETRY_SECONDS", 0.005)
    async with with_model_server(tmp_path) as (process, asks):
        file = tmp_path / "modelserver.json"
        document = json.loads(file.read_text())
        file.write_text("{")
        assert process._file.poll() is None
        document["preload"] = [WIDE, NARROW]
        (tmp_path / "models" / NARROW / "model.onnx").unlink()
        file.write_text(json.dumps(document))
        config = process._file.poll()
        assert config is not None
        process._take_up(config)
        narrow = process.repository.models[NARROW]
        await until(lambda: "is missing" in narrow.reason)
        assert await asks.status("/v2/health/ready") == 200
        write_graph(tmp_path / "models", NARROW)
        await until(lambda: bool(narrow.instances))


async def test_a_model_that_left_the_configuration_serves_until_it_is_unloaded(
    tmp_path: Path,
) -> None:
    async with with_model_server(tmp_path) as (process, asks):
        process.repository.configure(directory=tmp_path / "models", names=[NARROW], warm_rows=[1])
        assert asks.values(await asks.infer([1.0])) == [2.0]
        assert (await asks.load(WIDE, 2)).status == 404
        assert (await asks.unload(WIDE)).status == 200
        assert (await asks.infer([1.0])).status == 404


# ---- the device

GPU = DeviceReading(
    device="GPU-a", kind="gpu", utilisation=0.4, memory_total_bytes=80, memory_free_bytes=20
)


async def test_the_device_says_what_is_known_and_leaves_out_the_rest(tmp_path: Path) -> None:
    """F2, F6: by UUID, so that pods that share a GPU can be told."""
    devices = FakeDevices(GPU, DeviceReading(device="MIG-1", kind="mig", memory_free_bytes=5))
    async with with_model_server(tmp_path, devices=devices) as (_, asks):
        document = await asks.get("/device")
        assert document == {
            "device": "GPU-a", "kind": "gpu", "utilisation": 0.4,
            "memory_total_bytes": 80, "memory_free_bytes": 20,
            "devices": [
                {
                    "device": "GPU-a", "kind": "gpu", "utilisation": 0.4,
                    "memory_total_bytes": 80, "memory_free_bytes": 20,
                },
                {"device": "MIG-1", "kind": "mig", "memory_free_bytes": 5},
            ],
        }  # fmt: skip
        page = await asks.metrics()
        assert 'slimscale_device_utilisation{device="GPU-a",kind="gpu"} 0.4' in page
        assert 'slimscale_device_utilisation{device="MIG-1"' not in page


async def test_without_a_gpu_the_container_s_cpu_is_the_device(tmp_path: Path) -> None:
    async with with_model_server(tmp_path) as (_, asks):
        assert (await asks.get("/device"))["device"] == "cpu"


async def test_a_lost_gpu_makes_the_server_unready_then_asks_for_a_restart_and_clears(
    tmp_path: Path,
) -> None:
    """F4: and has no figure that could read as idle."""
    devices = FakeDevices(GPU)
    async with with_model_server(tmp_path, devices=devices) as (process, asks):
        devices.gpus = (DeviceReading(device="GPU-a", kind="gpu", lost=True),)
        await process.device.look()
        assert "GPU-a is lost" in asks.error(await asks.raw(b"GET", "/v2/health/ready"))
        assert await asks.get("/device") == {
            "device": "GPU-a", "kind": "gpu", "lost": True,
            "devices": [{"device": "GPU-a", "kind": "gpu", "lost": True}],
        }  # fmt: skip
        page = await asks.metrics()
        assert 'slimscale_device_lost{device="GPU-a",kind="gpu"} 1.0' in page
        assert "slimscale_device_utilisation{" not in page
        assert await asks.status("/v2/health/live") == 200
        devices.seconds += LOST_SECONDS
        await process.device.look()
        assert await asks.status("/v2/health/live") == 503
        devices.gpus = (GPU,)
        await process.device.look()
        assert await asks.status("/v2/health/live") == 200
        assert await asks.status("/v2/health/ready") == 200
        assert 'slimscale_device_lost{device="GPU-a",kind="gpu"} 0.0' in await asks.metrics()


async def test_a_driver_that_hangs_leaves_no_figure_standing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4."""
    monkeypatch.setattr("slimscale.serving.modelserver.device.HANG_SECONDS", 0.01)
    gate = asyncio.Event()
    devices = FakeDevices(GPU)
    watch = devices.watch()
    loop = asyncio.get_running_loop()
    hangs = True

    def read() -> tuple[DeviceReading, ...]:
        if hangs:
            asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(20)
        return (GPU,)

    watch.take((GPU,))
    monkeypatch.setattr(watch, "read", read)
    looking = asyncio.create_task(watch.look())
    await until(lambda: watch.readings[0].lost)
    assert watch.readings[0].utilisation is None
    hangs = False
    gate.set()
    await looking
    assert watch.readings == (GPU,)
    watch.close()


# ---- the contract of SimWorkload


async def test_the_operator_reads_the_page_as_a_simulation_s_with_rows_as_tasks(
    tmp_path: Path,
) -> None:
    async with with_model_server(tmp_path) as (_, asks):
        await asks.infer([1.0, 2.0, 3.0])
        page = await asks.metrics()
    sample = read_page(page, prefix="slimscale", pod_uid="u", now_seconds=time.time())
    assert sample.threads_applied == 1
    assert sample.tasks_total == 3
    assert sample.tasks_outstanding == 0
    assert sample.task is not None
    assert sample.task.count == 3
    assert sample.dispatch is not None
    assert sample.dispatch.count == 1
