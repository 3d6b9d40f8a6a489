"""One router process between clients and instant pods: CPU and wall time of a request, by policy."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slimscale.act.policy_manifest import policy_config_map
from slimscale.bench.router.pods import WIDTHS
from slimscale.bench.serving.processes import (
    ServerFailed,
    ServerProcess,
    cpu_seconds,
    free_port,
    wait_for_port,
)
from slimscale.bench.serving.systems import ONE_THREAD, Setting
from slimscale.routing.learned.features import CELL_FEATURES, REGIME_FEATURES
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.serving.http import ClientPool
from slimscale.serving.router.learned import SHIPPED_POLICY
from slimscale.weights import read_weights

__all__ = ["Cost", "RouterBench", "policy_weights", "write_policy"]

_BODY = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0.1, 0.2, 0.3, 0.4]}]}
).encode()
_PATH = b"/v2/models/digits/infer"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one policy in one repetition."""

    policy: str
    pods: int
    requests: int
    seconds: float
    cpu_microseconds: float
    """Of the router's process, a request."""

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"requests_per_second": self.requests_per_second}


def policy_weights() -> PolicyWeights:
    """The policy that ships, else a plain sum of the features: both cost the same."""
    found = read_weights(SHIPPED_POLICY)
    if found is not None:
        return PolicyWeights.read(*found)
    cells, regimes = len(CELL_FEATURES), len(REGIME_FEATURES)
    return PolicyWeights("plain-sum", np.ones(cells), np.zeros((cells, regimes)))


def write_policy(folder: Path) -> str:
    """Both files of `policy_weights`; its version."""
    data, card = policy_weights().write({})
    manifest = policy_config_map("policy", data=data, card=card)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.safetensors").write_bytes(data)
    (folder / "policy.json").write_text(manifest["data"]["policy.json"], encoding="utf-8")
    return str(card.get("version", ""))


class RouterBench:
    """`start`, any number of `run`, `stop`. Everything on loopback, nothing left behind."""

    def __init__(self, work: Path, *, pods: int) -> None:
        self._setting = Setting(models=work, work=work)
        self._folder = work / f"router-{pods}"
        self._number = pods
        self._pods: ServerProcess | None = None
        self._endpoints = ""

    def start(self) -> None:
        log = self._setting.logs / "router-pods.log"
        command = [self._setting.python, "-m", "slimscale.bench.router.pods", str(self._number)]
        self._pods = ServerProcess("pods", command, log=log, environment=ONE_THREAD)
        end = time.monotonic() + 30.0
        while not self._endpoints:
            self._pods.check()
            self._endpoints = log.read_text(encoding="utf-8").strip()
            if time.monotonic() > end:
                raise ServerFailed("the benchmark's pods do not listen after 30 s")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._pods is not None:
            self._pods.stop()
            self._pods = None

    def run(self, policy: str, mode: str, *, clients: int, seconds: float) -> Cost:
        """A fresh router with this policy under closed loops; the first half second is not counted."""
        port, status = free_port(), free_port()
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "router.json"
        config.write_text(json.dumps(_config(policy, mode)), encoding="utf-8")
        write_policy(self._folder / "policy")
        router = ServerProcess(
            "router",
            [self._setting.python, "-m", "slimscale.serving.router"],
            log=self._setting.logs / "router.log",
            environment={
                **ONE_THREAD,
                "SLIMSCALE_CONFIG": str(config),
                "SLIMSCALE_HOST": "127.0.0.1",
                "SLIMSCALE_PORT": str(port),
                "SLIMSCALE_STATUS_PORT": str(status),
                "SLIMSCALE_ENDPOINTS": self._endpoints,
                "SLIMSCALE_DRAIN_WAIT_SECONDS": "0",
                "SLIMSCALE_DRAIN_SECONDS": "1",
            },
        )
        try:
            wait_for_port(port, [router], seconds=20.0)
            load = _Load(port, clients)
            requests, spent, cpu = asyncio.run(load.run(router.pids(), seconds))
        finally:
            router.stop()
        name = policy if mode == "Active" else f"{policy} {mode}"
        return Cost(name, self._number, requests, spent, 1e6 * cpu / max(1, requests))


class _Load:
    """Closed loops over keep-alive connections of this process."""

    def __init__(self, port: int, clients: int) -> None:
        self._port = port
        self._clients = clients
        self.answered = 0

    async def run(self, pids: list[int], seconds: float) -> tuple[int, float, float]:
        """(answers, seconds, the router's CPU seconds)."""
        client = ClientPool(per_host=self._clients, connect_seconds=5.0)
        loops = [asyncio.create_task(self._loop(client)) for _ in range(self._clients)]
        try:
            await asyncio.sleep(0.5)
            before, cpu, began = self.answered, cpu_seconds(pids), time.monotonic()
            await asyncio.sleep(seconds)
            spent = time.monotonic() - began
            return self.answered - before, spent, cpu_seconds(pids) - cpu
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await client.close()

    async def _loop(self, client: ClientPool) -> None:
        headers = ((b"content-type", b"application/json"),)
        while True:
            reply = await client.request(
                b"POST", "127.0.0.1", self._port, _PATH, headers=headers, body=_BODY,
                timeout_seconds=10.0,
            )  # fmt: skip
            if reply.status != 200:
                raise ServerFailed(f"the router answered {reply.status}: {reply.body[:200]!r}")
            self.answered += 1


def _config(policy: str, mode: str) -> Mapping[str, Any]:
    return {
        "service": "digits",
        "namespace": "default",
        "endpointsService": "digits-pods",
        "widths": [
            {"ratio": ratio, "model": f"w{ratio:g}", "accuracy": accuracy, "flopsRatio": flops}
            for ratio, accuracy, flops in WIDTHS
        ],
        "pools": [{"name": "slow", "powerWatts": 20}, {"name": "fast", "powerWatts": 200}],
        "policy": policy,
        "mode": mode,
        "policyFromConfigMap": policy == "PPO",
        "sloMilliseconds": 100,
    }
