"""The two bodies that are simulated and the policy that drives them.

The policy is a small tanh network whose weights are drawn from a seed: what is measured is how
fast decisions and physics go round, which does not depend on how well the body walks.
"""

from itertools import pairwise

import mujoco
import numpy as np
from numpy.typing import NDArray

__all__ = ["Environment", "FloatArray", "Policy", "pendulum", "quadruped"]

FloatArray = NDArray[np.float64]

# Nothing can touch and nothing is limited, so one step is about a microsecond of work.
_PENDULUM = """
<mujoco>
  <option timestep="0.01">
    <flag contact="disable" constraint="disable" autoreset="disable"/>
  </option>
  <worldbody>
    <body>
      <joint name="pivot" type="hinge" axis="0 1 0" damping="0.05"/>
      <inertial pos="0 0 0.25" mass="1" diaginertia="0.02 0.02 0.001"/>
    </body>
  </worldbody>
  <actuator><motor joint="pivot" gear="2"/></actuator>
</mujoco>
"""

_LEG = """
<body pos="{x} {y} 0">
  <joint name="hip{i}" axis="0 1 0"/>
  <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.25"/>
  <body pos="0 0 -0.25">
    <joint name="knee{i}" axis="0 1 0"/>
    <geom type="capsule" size="0.025" fromto="0 0 0 0 0 -0.25"/>
  </body>
</body>
"""

_QUADRUPED = """
<mujoco>
  <option timestep="0.00025"/>
  <size memory="256K"/>
  <default>
    <geom density="400" friction="1 0.1 0.1"/>
    <joint type="hinge" stiffness="80" damping="2" armature="0.02" limited="true" range="-60 60"/>
  </default>
  <worldbody>
    <geom type="plane" size="10 10 1"/>
    <body pos="0 0 0.53">
      <freejoint/>
      <geom type="box" size="0.3 0.15 0.06"/>
      {legs}
    </body>
  </worldbody>
  <actuator>{motors}</actuator>
</mujoco>
"""


def pendulum() -> mujoco.MjModel:
    """One hinge and one motor: state (time, angle, velocity)."""
    return mujoco.MjModel.from_xml_string(_PENDULUM)


def quadruped() -> mujoco.MjModel:
    """A box on four sprung legs, eight motors; about 10 microseconds a step.

    It stands from the start and stays up whatever the policy does: a step costs the same at any
    age, so throughput does not depend on how many environments there are.
    """
    corners = [(x, y) for x in (0.25, -0.25) for y in (0.15, -0.15)]
    legs = "".join(_LEG.format(i=i, x=x, y=y) for i, (x, y) in enumerate(corners))
    motors = "".join(
        f'<motor joint="{joint}{i}" gear="8" ctrllimited="true" ctrlrange="-1 1"/>'
        for i in range(len(corners))
        for joint in ("hip", "knee")
    )
    return mujoco.MjModel.from_xml_string(_QUADRUPED.format(legs=legs, motors=motors))


class Policy:
    """actions = tanh(tanh(tanh(o W1) W2) W3), for a batch: (n, inputs) -> (n, outputs)."""

    def __init__(
        self, inputs: int, outputs: int, rng: np.random.Generator, *, hidden: int = 32
    ) -> None:
        sizes = (inputs, hidden, hidden, outputs)
        self._weights = [
            rng.normal(0.0, 1.0 / np.sqrt(rows), size=(rows, columns))
            for rows, columns in pairwise(sizes)
        ]

    def act(self, observations: FloatArray) -> FloatArray:
        activity = observations
        for weights in self._weights:
            activity = np.tanh(activity @ weights)
        return activity


class Environment:
    """One quadruped with its own state. Used by one thread at a time."""

    def __init__(self, model: mujoco.MjModel, rng: np.random.Generator) -> None:
        self.model = model
        self.data = mujoco.MjData(model)
        self._rng = rng
        self.age = 0
        self.reset()

    @staticmethod
    def observation_size(model: mujoco.MjModel) -> int:
        return int(model.nq - 2 + model.nv)

    def reset(self) -> None:
        mujoco.mj_resetData(self.model, self.data)
        self.data.qvel[:] = self._rng.normal(0.0, 0.1, size=self.model.nv)
        self.age = 0

    def observe(self, into: FloatArray) -> None:
        """Height, attitude, joint angles, velocities; not the place on the plane."""
        heights = self.model.nq - 2
        into[:heights] = self.data.qpos[2:]
        into[heights:] = self.data.qvel

    def advance(self, steps: int) -> None:
        """`steps` of physics in one call, during which other threads run (no interpreter lock)."""
        mujoco.mj_step(self.model, self.data, nstep=steps)
