"""`python -m simserver run | engine | sweep`."""

import argparse
import asyncio
import logging
import signal
import sys

from slimscale.inpod.server import port_from_environment

from .engine import serve
from .settings import SettingsError, read_settings

ENGINE_PORT = 7070


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simserver", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="the simulation, set up by SIM_THREADS and SIMSERVER_*")
    run.add_argument("--metrics-port", type=int, default=port_from_environment())
    engine = verbs.add_parser("engine", help="the external engine")
    engine.add_argument("--host", default="127.0.0.1")
    engine.add_argument("--port", type=int, default=ENGINE_PORT, help="0: any free one")
    sweep = verbs.add_parser("sweep", help="measure every phase under CFS quotas (root, cgroup)")
    sweep.add_argument("--quotas", default="1,1.5,2", help="cores")
    sweep.add_argument("--threads", default="1,2,3,4,8,16,32,64")
    sweep.add_argument("--repeats", type=int, default=5)
    sweep.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    sweep.add_argument("--json", help="also write all the measurements here")
    sweep.add_argument("--markdown", help="also write the tables here")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if options.verb == "engine":
        return asyncio.run(_engine(options.host, options.port))
    try:
        settings = read_settings()
    except SettingsError as error:
        parser.error(str(error))
    if options.verb == "sweep":
        from .sweep import sweep_command

        return sweep_command(settings, options)
    from .server import run as serve_simulation

    return serve_simulation(settings, metrics_port=options.metrics_port)


async def _engine(host: str, port: int) -> int:
    server = await serve(host, port)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # The first line on stdout is the port: whoever started us with port 0 reads it.
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with server:
        await stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
