"""`python -m slimscale.bench.router.pods 8`: sidecars that answer at once, for the router to route to.

Prints `name=host:port,...` when they listen. Each answer carries telemetry that differs from the last
one, as a busy pod's does, so that the router has to read it.
"""

import asyncio
import signal
import sys
from itertools import count

from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.serving import headers as names
from slimscale.serving.http import HttpServer, Request, Response
from slimscale.serving.http.messages import JSON_TYPE
from slimscale.serving.telemetry import encode_telemetry

__all__ = ["WIDTHS"]

WIDTHS = ((0.25, 0.703, 0.07), (0.5, 0.735, 0.27), (0.75, 0.755, 0.56), (1.0, 0.765, 1.0))
"""Ratio, accuracy and share of the FLOPs."""
_ANSWER = (
    b'{"model_name":"digits","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[1]}]}'
)


def _told(pod: int) -> list[bytes]:
    """Some telemetry of a pod; unlike pods take unlike times."""
    row = 0.0005 * (1 + pod % 4)
    return [
        encode_telemetry(
            PodTelemetry(
                tuple(
                    WidthTelemetry(
                        f"w{ratio:g}", 1, False, step, 1, base_seconds=0.002,
                        row_seconds=row * flops, load_seconds=1.0,
                    )
                    for ratio, _, flops in WIDTHS
                ),
                backlog_seconds=0.001 * step,
                power_watts=40.0 + pod,
            )
        )
        for step in range(7)
    ]  # fmt: skip


def _handler(pod: int) -> "_Handler":
    return _Handler(_told(pod), b"fast" if pod % 2 else b"slow")


class _Handler:
    def __init__(self, told: list[bytes], pool: bytes) -> None:
        self._told = told
        self._pool = pool
        self._number = count()

    def __call__(self, request: Request) -> Response:
        telemetry = self._told[next(self._number) % len(self._told)]
        if request.path == "/telemetry":
            return Response(200, telemetry, (JSON_TYPE, (names.POOL, self._pool)))
        return Response(
            200,
            _ANSWER,
            (
                JSON_TYPE,
                (names.TELEMETRY, telemetry),
                (names.POOL, self._pool),
                (names.QUEUE_MILLISECONDS, b"0.1"),
                (names.COMPUTE_MILLISECONDS, b"0.1"),
                (names.BATCH_ROWS, b"1"),
            ),
        )


async def _serve(pods: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    servers = [HttpServer(_handler(pod), name=f"pod-{pod}") for pod in range(pods)]
    for server in servers:
        await server.start("127.0.0.1", 0)
    listening = ",".join(f"pod-{i}=127.0.0.1:{one.port}" for i, one in enumerate(servers))
    sys.stdout.write(listening + "\n")
    sys.stdout.flush()
    await stop.wait()
    for server in servers:
        await server.close()


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(int(sys.argv[1])))
