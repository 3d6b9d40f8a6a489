"""The systems by name, in the order of the tables."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from slimscale.bench.serving.environments import PEERS, environment
from slimscale.bench.serving.processes import ServerProcess, free_port, wait_for_port
from slimscale.bench.serving.systems import (
    MODEL,
    ONE_THREAD,
    ROWS,
    START_SECONDS,
    Dialect,
    ProcessSystem,
    Setting,
    System,
    start_server,
)

__all__ = ["SYSTEMS", "build_system"]

_SERVERS = "slimscale.bench.serving.servers"
SERVICE = "bench"
SERVED: dict[str, Any] = {
    "service": SERVICE,
    "widths": [{"ratio": 1.0, "model": MODEL, "accuracy": 0.9}],
}


def _model_server(setting: Setting, system: str, add: ProcessSystem) -> int:
    """Our model server, behind every batcher that is a process of its own. Returns its port."""
    port = free_port()
    folder = setting.work / "config" / system
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "modelserver.json"
    config.write_text(
        json.dumps({**SERVED, "directory": str(setting.models), "preload": [MODEL], "threads": 1})
    )
    process = add.add(
        ServerProcess(
            "model",
            [setting.python, "-m", "slimscale.serving.modelserver"],
            log=setting.logs / f"{system}-model.log",
            environment={
                **ONE_THREAD,
                "SLIMSCALE_CONFIG": str(config),
                "SLIMSCALE_HOST": "127.0.0.1",
                "SLIMSCALE_MODELSERVER_PORT": str(port),
                "SLIMSCALE_METRICS_PORT": "0",
            },
        )
    )
    wait_for_port(port, [process], seconds=START_SECONDS)
    return port


def direct(setting: Setting) -> System:
    def build(port: int, add: ProcessSystem) -> None:
        add.add(
            start_server(
                setting, "model", f"{_SERVERS}.direct", "--model", setting.model_file,
                "--port", port, "--name", MODEL,
            )
        )  # fmt: skip

    return ProcessSystem("direct", build)


def window(milliseconds: int) -> Callable[[Setting], System]:
    def made(setting: Setting) -> System:
        def build(port: int, add: ProcessSystem) -> None:
            upstream = _model_server(setting, f"window-{milliseconds}ms", add)
            add.add(
                start_server(
                    setting, "batcher", f"{_SERVERS}.window", "--port", port,
                    "--upstream-port", upstream, "--window-milliseconds", milliseconds,
                    "--rows", ROWS, "--name", MODEL,
                )
            )  # fmt: skip

        return ProcessSystem(f"window-{milliseconds}ms", build)

    return made


def litserve(wait_milliseconds: int, *, queue: str = "plain") -> Callable[[Setting], System]:
    def made(setting: Setting) -> System:
        def build(port: int, add: ProcessSystem) -> None:
            python = environment("litserve", setting.work) / "bin" / "python"
            add.add(
                ServerProcess(
                    "server",
                    [str(python), str(PEERS / "litserve_app.py"), str(setting.model_file),
                     str(port), str(ROWS), str(wait_milliseconds / 1000), queue],
                    log=setting.logs / "litserve.log",
                    environment={**ONE_THREAD, "PYTHONPATH": ""},
                )
            )  # fmt: skip

        name = f"litserve-{wait_milliseconds}ms{'-fast' if queue == 'fast' else ''}"
        return ProcessSystem(
            name, build, path="/predict", install=partial(environment, "litserve", setting.work)
        )

    return made


def bentoml(setting: Setting) -> System:
    def build(port: int, add: ProcessSystem) -> None:
        folder = environment("bentoml", setting.work)
        add.add(
            ServerProcess(
                "server",
                [str(folder / "bin" / "bentoml"), "serve", "bentoml_app:Classifier",
                 "--host", "127.0.0.1", "--port", str(port), "--working-dir", str(PEERS)],
                log=setting.logs / "bentoml.log",
                environment={
                    **ONE_THREAD,
                    "PYTHONPATH": "",
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "BENCH_MODEL": str(setting.model_file.absolute()),
                    "BENCH_ROWS": str(ROWS),
                    "BENTOML_HOME": str((setting.work / "bentoml").absolute()),
                    "BENTOML_DO_NOT_TRACK": "True",
                },
            )
        )  # fmt: skip

    return ProcessSystem(
        "bentoml", build, path="/infer", dialect=Dialect.ROWS,
        install=partial(environment, "bentoml", setting.work),
    )  # fmt: skip


def ray(setting: Setting) -> System:
    def build(port: int, add: ProcessSystem) -> None:
        python = environment("ray", setting.work) / "bin" / "python"
        add.add(
            ServerProcess(
                "server",
                [str(python), str(PEERS / "ray_app.py"), str(setting.model_file.absolute()),
                 str(port), str(ROWS), "0"],
                log=setting.logs / "ray.log",
                environment={
                    **ONE_THREAD,
                    "PYTHONPATH": "",
                    "RAY_USAGE_STATS_ENABLED": "0",
                },
            )
        )  # fmt: skip

    # Ray's daemons take each other for dead after a pause, so that it runs only while it is measured.
    return ProcessSystem(
        "ray", build, path="/", pausable=False, install=partial(environment, "ray", setting.work)
    )


def slimscale(
    name: str, batching: Mapping[str, Any], *, routed: bool = False, headers: Mapping[str, str]
) -> Callable[[Setting], System]:
    """Our sidecar in front of the model server; `routed`: our router in front of that."""

    def made(setting: Setting) -> System:
        def build(port: int, add: ProcessSystem) -> None:
            folder = setting.work / "config" / name
            folder.mkdir(parents=True, exist_ok=True)
            upstream = _model_server(setting, name, add)
            sidecar_port = free_port() if routed else port
            config = folder / "sidecar.json"
            config.write_text(json.dumps({**SERVED, "batching": batching}))
            sidecar = add.add(
                ServerProcess(
                    "sidecar",
                    [setting.python, "-m", "slimscale.serving.sidecar"],
                    log=setting.logs / f"{name}-sidecar.log",
                    environment={
                        **ONE_THREAD,
                        "SLIMSCALE_CONFIG": str(config),
                        "SLIMSCALE_HOST": "127.0.0.1",
                        "SLIMSCALE_PORT": str(sidecar_port),
                        "SLIMSCALE_STATUS_PORT": "0",
                        "SLIMSCALE_MODELSERVER_PORT": str(upstream),
                        "SLIMSCALE_DRAIN_GRACE_SECONDS": "0",
                        "SLIMSCALE_POD_NAME": "pod-0",
                        "SLIMSCALE_POOL": "cpu",
                    },
                )
            )
            if not routed:
                return
            wait_for_port(sidecar_port, [sidecar], seconds=START_SECONDS)
            config = folder / "router.json"
            routes = {"namespace": "bench", "endpointsService": "bench", "pools": [{"name": "cpu"}]}
            config.write_text(json.dumps({**SERVED, **routes}))
            add.add(
                ServerProcess(
                    "router",
                    [setting.python, "-m", "slimscale.serving.router"],
                    log=setting.logs / f"{name}-router.log",
                    environment={
                        **ONE_THREAD,
                        "SLIMSCALE_CONFIG": str(config),
                        "SLIMSCALE_HOST": "127.0.0.1",
                        "SLIMSCALE_PORT": str(port),
                        "SLIMSCALE_STATUS_PORT": "0",
                        "SLIMSCALE_ENDPOINTS": f"pod-0=127.0.0.1:{sidecar_port}",
                        "SLIMSCALE_DRAIN_WAIT_SECONDS": "0",
                    },
                )
            )

        return ProcessSystem(
            name, build, path=f"/v2/models/{SERVICE if routed else MODEL}/infer", headers=headers
        )

    return made


GREEDY: Mapping[str, Any] = {"maxRows": ROWS, "holdMilliseconds": 0}
HOLDING: Mapping[str, Any] = {"maxRows": ROWS, "holdMilliseconds": 50}

SYSTEMS: dict[str, Callable[[Setting], System]] = {
    "direct": direct,
    "slimscale": slimscale("slimscale", GREEDY, headers={}),
    "slimscale-routed": slimscale("slimscale-routed", GREEDY, routed=True, headers={}),
    "slimscale-hold": slimscale(
        "slimscale-hold", HOLDING, headers={"slimscale-deadline-ms": "2000"}
    ),
    "window-50ms": window(50),
    "window-500ms": window(500),
    "litserve-0ms": litserve(0),
    "litserve-0ms-fast": litserve(0, queue="fast"),
    "litserve-10ms": litserve(10),
    "bentoml": bentoml,
    "ray": ray,
}


def build_system(name: str, setting: Setting) -> System:
    """Raises KeyError for a name that is not in SYSTEMS."""
    return SYSTEMS[name](setting)
