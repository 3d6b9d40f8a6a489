"""Serves the metrics page: two read-only routes, few connections at a time, a daemon thread."""

import http.server
import logging
import os
import socket
import socketserver
import threading
from collections.abc import Callable
from typing import Any, Final

from slimscale.inpod.cgroup import read_cgroup
from slimscale.inpod.exposition import CONTENT_TYPE, process_start_seconds, render
from slimscale.inpod.recorder import Recorder

__all__ = ["DEFAULT_PORT", "PORT_ENV", "MetricsServer", "page", "port_from_environment", "serve"]

PORT_ENV: Final = "SLIMSCALE_METRICS_PORT"
DEFAULT_PORT: Final = 9464
_MAX_CONNECTIONS: Final = 8
_CONNECTION_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


def port_from_environment() -> int:
    """SLIMSCALE_METRICS_PORT, or the default when it is unset or not a port."""
    text = os.environ.get(PORT_ENV, "")
    if not text:
        return DEFAULT_PORT
    if text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535:
        return int(text)
    _log.warning("%s is not a port; using %d", PORT_ENV, DEFAULT_PORT)
    return DEFAULT_PORT


def page(recorder: Recorder) -> str:
    """The metrics as they are now."""
    return render(
        recorder.figures(),
        read_cgroup(),
        start_seconds=process_start_seconds(),
        ignored=dict(recorder.ignored_thread_values),
    )


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = _CONNECTION_SECONDS
    server: "_Listener"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        status, kind, body = 404, "text/plain; charset=utf-8", b"not found\n"
        if path == "/healthz":
            status, body = 200, b"ok\n"
        elif path == "/metrics":
            status, kind, body = 200, CONTENT_TYPE, self.server.page().encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def version_string(self) -> str:
        return "slimscale-inpod"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the simulation's log is not ours."""


class _Listener(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 16

    def __init__(self, page: Callable[[], str], address: tuple[str, int], family: int) -> None:
        self.page = page
        self.address_family = family
        self._room = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            # One socket for both families, as a dual-stack cluster needs.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class MetricsServer:
    """Runs until `close`. `port` is the one in use, also when 0 was asked for."""

    def __init__(self, page: Callable[[], str], *, port: int, host: str = "") -> None:
        try:
            self._listener = _listen(page, host, port)
        except OSError as error:
            raise OSError(
                error.errno,
                f"port {port} for /metrics cannot be used ({error.strerror}); set"
                " SLIMSCALE_METRICS_PORT to a free one, 0 for any",
            ) from error
        self.port: int = self._listener.server_address[1]
        self._thread = threading.Thread(
            target=self._listener.serve_forever,
            kwargs={"poll_interval": 0.25},
            name="slimscale-metrics",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown()
        self._listener.server_close()
        self._thread.join()


def _listen(page: Callable[[], str], host: str, port: int) -> _Listener:
    if host:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return _Listener(page, (host, port), family)
    if socket.has_dualstack_ipv6():
        return _Listener(page, ("::", port), socket.AF_INET6)
    return _Listener(page, ("", port), socket.AF_INET)


def serve(recorder: Recorder, *, port: int | None = None, host: str = "") -> MetricsServer:
    """Serve /metrics and /healthz. port None: SLIMSCALE_METRICS_PORT; 0: any free one.

    Raises:
        OSError: the port is taken.
    """
    chosen = port_from_environment() if port is None else port
    return MetricsServer(lambda: page(recorder), port=chosen, host=host)
