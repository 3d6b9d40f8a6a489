"""One library's work with a thread count, as a process of its own: asked by `libraries`.

`python -m slimscale.bench.native.library_child NAME` prints one line when it is ready, then reads
"threads seconds" a line and answers with a line of JSON: rounds done and seconds taken.
"""

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

__all__ = ["LIBRARIES", "Library", "main"]

MOST_THREADS = 16


@dataclass(frozen=True, slots=True)
class Library:
    """How a library is driven. `prepare` gives what makes, for a thread count, one round of work."""

    module: str
    """What must be importable."""
    what: str
    prepare: Callable[[], Callable[[int], Callable[[], object]]]


def _numba() -> Callable[[int], Callable[[], object]]:
    os.environ.setdefault("NUMBA_NUM_THREADS", str(MOST_THREADS))
    import numba
    import numpy as np

    @numba.njit(parallel=True, cache=False)
    def swing(angles: Any, speeds: Any) -> None:
        for i in numba.prange(len(angles)):
            angle, speed = angles[i], speeds[i]
            for _ in range(20):
                speed -= 0.01 * np.sin(angle)
                angle += 0.01 * speed
            angles[i], speeds[i] = angle, speed

    angles, speeds = np.linspace(-1, 1, 2000), np.zeros(2000)

    def of(threads: int) -> Callable[[], object]:
        numba.set_num_threads(threads)
        return lambda: swing(angles, speeds)

    return of


def _torch() -> Callable[[int], Callable[[], object]]:
    import torch

    torch.manual_seed(0)
    policy = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh(),
        torch.nn.Linear(256, 16),
    )  # fmt: skip
    observations = torch.randn(256, 64)

    def of(threads: int) -> Callable[[], object]:
        torch.set_num_threads(threads)

        def once() -> object:
            with torch.no_grad():
                return policy(observations)

        return once

    return of


def _onnxruntime() -> Callable[[int], Callable[[], object]]:
    import numpy as np
    import onnxruntime

    model = _onnx_policy()
    observations = np.random.default_rng(0).standard_normal((256, 64)).astype(np.float32)

    def of(threads: int) -> Callable[[], object]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {"observations": observations})

    return of


def _onnx_policy() -> bytes:
    import numpy as np

    onnx = importlib.import_module("onnx")
    helper, numpy_helper, single = onnx.helper, onnx.numpy_helper, onnx.TensorProto.FLOAT
    rng = np.random.default_rng(0)
    nodes, constants, name = [], [], "observations"
    for index, (rows, columns) in enumerate(((64, 256), (256, 256), (256, 16))):
        weight = (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)
        constants.append(numpy_helper.from_array(weight, f"w{index}"))
        nodes.append(helper.make_node("MatMul", [name, f"w{index}"], [f"h{index}"]))
        nodes.append(helper.make_node("Tanh", [f"h{index}"], [f"a{index}"]))
        name = f"a{index}"
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observations", single, [256, 64])],
        [helper.make_tensor_value_info(name, single, [256, 16])],
        constants,
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return bytes(model.SerializeToString())


_PENDULUM = """
<mujoco><option timestep="0.002"/><worldbody><light pos="0 0 3"/>
<body pos="0 0 1.5"><joint type="hinge" axis="0 1 0"/><geom type="capsule" size="0.04" fromto="0 0 0 0 0 -0.5"/>
<body pos="0 0 -0.5"><joint type="hinge" axis="0 1 0"/><geom type="capsule" size="0.04" fromto="0 0 0 0 0 -0.5"/>
</body></body></worldbody></mujoco>
"""


def _mujoco() -> Callable[[int], Callable[[], object]]:
    import mujoco

    model = mujoco.MjModel.from_xml_string(_PENDULUM)
    episodes = [mujoco.MjData(model) for _ in range(32)]

    def episode(data: Any) -> None:
        mujoco.mj_resetData(model, data)
        data.qpos[0] = 1.0
        mujoco.mj_step(model, data, 100)  # without the interpreter's lock

    def of(threads: int) -> Callable[[], object]:
        pool = ThreadPoolExecutor(threads)
        return lambda: list(pool.map(episode, episodes))

    return of


def _envpool() -> Callable[[int], Callable[[], object]]:
    import numpy as np

    envpool = importlib.import_module("envpool")

    def of(threads: int) -> Callable[[], object]:
        environments = envpool.make(
            "Pendulum-v1", env_type="gymnasium", num_envs=64, num_threads=threads
        )
        environments.reset()
        actions = np.zeros((64, 1), dtype=np.float32)
        return lambda: environments.step(actions)

    return of


LIBRARIES: dict[str, Library] = {
    "mujoco": Library("mujoco", "32 episodes of 100 steps of a double pendulum", _mujoco),
    "envpool": Library("envpool", "one step of 64 pendulums", _envpool),
    "numba": Library("numba", "20 steps of 2,000 pendulums, prange", _numba),
    "onnxruntime": Library("onnxruntime", "a policy of three layers, batch 256", _onnxruntime),
    "torch": Library("torch", "a policy of three layers, batch 256", _torch),
}


def main(arguments: Sequence[str]) -> None:
    of = LIBRARIES[arguments[0]].prepare()
    of(1)()  # compile and load before anything is timed
    sys.stdout.write('{"ready": true}\n')
    sys.stdout.flush()
    for line in sys.stdin:
        threads, seconds = line.split()
        once = of(int(threads))
        once()
        rounds, begin = 0, time.perf_counter()
        while (spent := time.perf_counter() - begin) < float(seconds):
            once()
            rounds += 1
        sys.stdout.write(json.dumps({"rounds": rounds, "seconds": spent}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
