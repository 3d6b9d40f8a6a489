import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slimscale import inpod
from slimscale.inpod.recorder import Recorder
from slimscale.inpod.server import MetricsServer, port_from_environment, serve


@pytest.fixture
def recorder() -> Recorder:
    recorder = Recorder()
    recorder.task(0.01, 0.005, 0.001)
    return recorder


@pytest.fixture
def server(recorder: Recorder) -> Iterator[MetricsServer]:
    server = serve(recorder, port=0, host="127.0.0.1")
    yield server
    server.close()


def ask(port: int, method: str, path: str) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Content-Type", ""), answer.read()
    finally:
        connection.close()


def test_metrics_are_served_as_text_0_0_4(server: MetricsServer) -> None:
    status, kind, body = ask(server.port, "GET", "/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert {"slimscale_task_seconds", "slimscale_tasks"} <= names


def test_health_says_ok(server: MetricsServer) -> None:
    assert ask(server.port, "GET", "/healthz")[::2] == (200, b"ok\n")
    assert ask(server.port, "HEAD", "/healthz")[::2] == (200, b"")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/../etc/passwd", "/threads"])
def test_no_other_path_is_there(server: MetricsServer, path: str) -> None:
    status, _, body = ask(server.port, "GET", path)
    assert (status, body) == (404, b"not found\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_no_method_changes_anything(server: MetricsServer, method: str) -> None:
    assert ask(server.port, method, "/metrics")[0] == 501


def test_silent_connections_use_up_a_bounded_number_of_threads(server: MetricsServer) -> None:
    before = threading.active_count()
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(12)]
    # Those over the bound are closed at once: their read ends.
    assert any(connection.recv(1) == b"" for connection in silent[8:])
    assert threading.active_count() - before <= 8
    for connection in silent:
        connection.close()


@pytest.mark.parametrize(
    ("text", "port"),
    [("", 9464), ("8080", 8080), ("x", 9464), ("-1", 9464), ("70000", 9464), ("123456", 9464)],
)
def test_the_port_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, port: int
) -> None:
    monkeypatch.setenv("SLIMSCALE_METRICS_PORT", text)
    assert port_from_environment() == port


def test_a_taken_port_does_not_stop_the_simulation(
    server: MetricsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second = socket.create_server(("", 0))
    with (
        second,
        inpod.ThreadPool(1) as pool,
        inpod.start(pool, path=tmp_path / "none", port=second.getsockname()[1]) as session,
    ):
        assert session.server is None
        assert pool.submit(int).result(20) == 0
    assert "metrics are not served" in caplog.text


def test_one_call_follows_and_serves(tmp_path: Path) -> None:
    file = tmp_path / "threads"
    file.write_text("3")
    resized = threading.Event()

    class Seen(inpod.ThreadPool):
        def resize(self, max_workers: int) -> None:
            super().resize(max_workers)
            resized.set()

    pool = Seen(1)
    with pool, inpod.start(pool, path=file, port=0, poll_seconds=0.01) as session:
        assert session.server is not None
        assert resized.wait(20)
        _, _, body = ask(session.server.port, "GET", "/metrics")
    assert b"slimscale_threads_applied 3\n" in body


def test_own_pools_acknowledge_from_their_own_thread(tmp_path: Path) -> None:
    file = tmp_path / "threads"
    file.write_text("3")
    sizes: list[int] = []
    with inpod.start(callback=sizes.append, threads=2, path=file, port=0) as session:
        assert session.recorder.figures().threads_applied == 2
        assert session.follower.apply() == 3
        assert session.recorder.figures().threads_applied == 3
    assert sizes == [3]


def test_start_needs_a_pool_or_a_callback() -> None:
    with pytest.raises(ValueError, match="either"):
        inpod.start()


def test_a_taken_port_is_named_with_the_variable_that_changes_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"port {port} .*SLIMSCALE_METRICS_PORT"):
            MetricsServer(lambda: "", port=port, host="127.0.0.1")
