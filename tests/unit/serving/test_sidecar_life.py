"""Readiness, drain, hot configuration, the instances of widths, and what the data port serves."""

import asyncio
import json
from pathlib import Path

import pytest

from slimscale.domain.serving import PodTelemetry
from slimscale.serving.protocol import error_response
from slimscale.serving.sidecar.device import read_device
from slimscale.serving.sidecar.process import Sidecar
from slimscale.serving.sidecar.settings import SidecarSettings
from slimscale.serving.telemetry import decode_telemetry
from tests.support.fake_model_server import FakeModelServer
from tests.support.raw_http import RawConnection
from tests.support.sidecars import Asker, config_document, until, with_sidecar


async def status_of(sidecar: Sidecar, path: str) -> int:
    asker = Asker(sidecar.status.port)
    answer = await asker.raw(b"GET", path)
    await asker.pool.close()
    return answer.status


async def test_not_ready_until_one_inference_has_gone_through(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    server.hold()
    async with with_sidecar(tmp_path, server, ready=False) as (sidecar, asker):
        await server.arrived.wait()  # the probe is on its way; loaded and listed is not enough
        assert await status_of(sidecar, "/readyz") == 503
        assert (await asker.raw(b"GET", "/v2/health/ready")).status == 503
        assert (await asker.raw(b"GET", "/v2/health/live")).status == 200
        server.release()
        await until(lambda: sidecar.ready() is None)
        assert await status_of(sidecar, "/readyz") == 200
        assert await status_of(sidecar, "/healthz") == 200
        assert json.loads((await asker.raw(b"GET", "/v2/health/ready")).body) == {"ready": True}


async def test_not_ready_with_a_model_server_that_fails_every_inference(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    server.fault = lambda _rows: error_response(500, "broken")
    async with with_sidecar(tmp_path, server, ready=False) as (sidecar, asker):
        await until(lambda: len(server.batches) >= 2)
        assert "broken" in str(sidecar.ready())
        answer = await asker.infer([1.0])
        assert answer.status == 503


async def test_a_model_server_with_nothing_loaded_gets_the_widest_width(tmp_path: Path) -> None:
    server = FakeModelServer()
    async with with_sidecar(tmp_path, server) as (_, asker):
        assert server.loaded == {"digits-w100"}
        assert Asker.values(await asker.infer([1.0])) == [10.0]


async def test_not_ready_while_the_model_server_is_gone_and_again_after_a_probe(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, _):
        await server.stop()
        sidecar.keeper.wake()
        await until(lambda: sidecar.ready() is not None)
        before = len(server.batches)
        await server.start()
        await until(lambda: sidecar.ready() is None)
        assert len(server.batches) == before + 1


async def test_a_lost_gpu_is_said_in_readiness_and_telemetry_and_clears(tmp_path: Path) -> None:
    """F4: so that the pod gets no traffic, and is replaced."""
    server = FakeModelServer("digits-w100")
    server.device = {"device": "GPU-a", "memory_free_bytes": 7}
    async with with_sidecar(tmp_path, server) as (sidecar, asker):

        async def told() -> PodTelemetry:
            return decode_telemetry((await asker.raw(b"GET", "/telemetry")).body)

        assert not (await told()).device_lost
        server.is_ready, server.device = False, {"device": "GPU-a", "lost": True}
        await until(lambda: sidecar.ready() == "the device GPU-a is lost")
        assert await status_of(sidecar, "/readyz") == 503
        lost = await told()
        assert (lost.device, lost.device_lost, lost.memory_free_bytes) == ("GPU-a", True, None)
        server.device = {}  # a new process, which is loading
        await until(lambda: sidecar.ready() == "the model server is not ready")
        assert not (await told()).device_lost
        server.is_ready = True
        await until(lambda: sidecar.ready() is None)


async def test_loading_another_width_leaves_the_pod_ready_and_serving(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        cold = await asker.infer([1.0], model="digits-w050")
        assert Asker.values(cold) == [10.0]
        assert sidecar.ready() is None
        assert sidecar.batcher.models["digits-w050"].load_seconds is not None


async def test_a_busy_width_gets_a_second_instance_that_runs_beside_the_first(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    server.device = {"utilisation": 0.2, "memory_free_bytes": 2**33}
    async with with_sidecar(tmp_path, server, maxRows=1, maxInstances=2, memoryReserveBytes=0) as (
        sidecar,
        asker,
    ):
        model = sidecar.batcher.models["digits-w100"]
        model.memory_bytes = 2**20
        server.hold()
        tasks = [asyncio.create_task(asker.infer([float(n)])) for n in range(4)]
        await until(lambda: len(sidecar.batcher.queues) == 3)
        sidecar.keeper.wake()
        await until(lambda: server.running == 2)
        assert model.instances == 2
        server.release()
        assert [Asker.values(await task) for task in tasks] == [[10.0 * n] for n in range(4)]


async def test_a_failed_loop_is_started_anew_and_not_ready_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        look, failed = sidecar.keeper.run_once, asyncio.Event()

        async def fail_once() -> None:
            sidecar.keeper.run_once = look  # type: ignore[method-assign]
            failed.set()
            raise RuntimeError("a fault of ours")

        sidecar.keeper.run_once = fail_once  # type: ignore[method-assign]
        sidecar.keeper.wake()
        await failed.wait()
        await until(lambda: sidecar.ready() is not None)
        await until(lambda: sidecar.ready() is None)
        assert Asker.values(await asker.infer([1.0])) == [10.0]
        count = sidecar.metrics.registry.get_sample_value
        assert count("slimscale_sidecar_loop_restarts_total", {"loop": "keeper"}) == 1
        assert "a fault of ours" in caplog.text


async def test_drain_is_not_ready_first_takes_requests_for_a_while_and_loses_none(
    tmp_path: Path,
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server, settings={"drain_grace_seconds": 1.0}) as (
        sidecar,
        asker,
    ):
        server.hold()
        tasks = [asyncio.create_task(asker.infer([1.0]))]
        await server.arrived.wait()
        tasks.append(asyncio.create_task(asker.infer([2.0])))
        await until(lambda: len(sidecar.batcher.queues) == 1)
        draining = asyncio.create_task(sidecar.drain())
        await until(lambda: sidecar.ready() == "draining")
        assert json.loads((await asker.raw(b"GET", "/telemetry")).body)["draining"] is True
        tasks.append(asyncio.create_task(asker.infer([3.0])))  # endpoints lag: still taken
        await until(lambda: len(sidecar.batcher.queues) == 2)
        await until(lambda: not sidecar.server.listening)
        assert not draining.done()
        server.release()
        answers = await asyncio.gather(*tasks)
        assert [Asker.values(answer) for answer in answers] == [[10.0], [20.0], [30.0]]
        assert all(answer.headers[b"connection"] == b"close" for answer in answers)
        await draining
        with pytest.raises(OSError, match=r"refused|Connect"):
            await RawConnection.open(asker.port)


async def test_what_is_left_when_the_drain_runs_out_is_told_so(tmp_path: Path) -> None:
    server = FakeModelServer("digits-w100")
    document = config_document() | {"drainSeconds": 1}
    async with with_sidecar(
        tmp_path, server, document=document, settings={"drain_grace_seconds": 0.0}
    ) as (sidecar, asker):
        server.hold()
        stuck = asyncio.create_task(asker.infer([1.0]))
        await server.arrived.wait()
        await sidecar.drain()
        (outcome,) = await asyncio.gather(stuck, return_exceptions=True)
        assert isinstance(outcome, BaseException) or outcome.status == 503
        server.release()


async def test_a_changed_configuration_is_taken_up_and_a_bad_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (sidecar, asker):
        config = tmp_path / "sidecar.json"
        value = sidecar.metrics.registry.get_sample_value
        assert value("slimscale_sidecar_config", {"setting": "maxRows"}) == 32
        config.write_text(json.dumps(config_document(maxRows=2) | {"service": "renamed"}))
        await until(lambda: sidecar.batcher.batching.max_rows == 2)
        assert value("slimscale_sidecar_config", {"setting": "maxRows"}) == 2
        assert (await asker.infer([1.0] * 3)).status == 413
        assert (await asker.raw(b"GET", "/v2/models/renamed")).status == 200
        assert (await asker.raw(b"GET", "/v2/models/digits")).status == 404
        config.write_text(json.dumps(config_document(maxRows=0)))
        await until(lambda: value("slimscale_sidecar_config_faults_total") == 1)
        assert sidecar.batcher.batching.max_rows == 2
        assert "batching.maxRows" in caplog.text


def test_a_bad_first_configuration_ends_the_process_with_the_field_named(tmp_path: Path) -> None:
    config = tmp_path / "sidecar.json"
    config.write_text(json.dumps(config_document(maxRows=0)))

    async def make() -> None:
        Sidecar(SidecarSettings(config=config))

    with pytest.raises(ValueError, match=r"batching\.maxRows"):
        asyncio.run(make())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        (b"POST", "/v2/repository/models/digits-w100/unload", 404),
        (b"POST", "/v2/repository/models/digits-w100/load", 404),
        (b"POST", "/v2/repository/index", 404),
        (b"POST", "/telemetry", 404),
        (b"DELETE", "/v2/models/digits-w100", 405),
        (b"PUT", "/v2/models/digits-w100/infer", 405),
        (b"GET", "/v2/models/digits-w100/infer", 405),
        (b"GET", "/metrics", 404),
        (b"GET", "/v2/models/unknown", 404),
        (b"GET", "/", 404),
    ],
)
async def test_the_data_port_has_no_route_that_changes_anything(
    tmp_path: Path, method: bytes, path: str, status: int
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (_, asker):
        calls = list(server.calls)
        answer = await asker.raw(method, path)
        assert answer.status == status
        assert "error" in json.loads(answer.body)
        assert server.loaded == {"digits-w100"}
        assert not any("LOAD" in call for call in server.calls[len(calls) :])


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (b"slimscale-deadline-ms", b"soon"),
        (b"slimscale-deadline-ms", b"-5"),
        (b"slimscale-deadline-ms", b"nan"),
        (b"slimscale-deadline-ms", b"1e12"),
        (b"slimscale-batch-cap", b"0"),
        (b"slimscale-batch-cap", b"many"),
    ],
)
async def test_a_header_that_makes_no_sense_is_refused_by_name(
    tmp_path: Path, header: bytes, value: bytes
) -> None:
    server = FakeModelServer("digits-w100")
    async with with_sidecar(tmp_path, server) as (_, asker):
        answer = await asker.infer([1.0], headers={header: value})
        assert answer.status == 400
        assert header.decode() in Asker.error(answer)


def test_a_device_that_says_nothing_or_nonsense_is_unknown_never_idle() -> None:
    nothing = read_device({})
    odd = read_device(
        {"utilisation": "N/A", "memory_free_bytes": None, "power_watts": float("nan"),
         "memory_total_bytes": True, "device": ""}
    )  # fmt: skip
    assert nothing == odd
    assert (odd.utilisation, odd.memory_free_bytes, odd.power_watts, odd.device) == (None,) * 4
    assert read_device({"utilisation": 0.0}).utilisation == 0.0
