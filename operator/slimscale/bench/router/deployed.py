"""The policy as routers run it, shield and looks included, on the compiled data plane of the simulator.

The network alone, asked afresh for each request, is what training optimises. What acts in a cluster is
that network behind its shield, with looks 40 ms apart: this says what of it arrives there.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from slimscale.domain.serving import PodTelemetry, WidthTelemetry
from slimscale.routing.amortised import AmortisedRouter
from slimscale.routing.learned import layout
from slimscale.routing.learned.objective import Objective
from slimscale.routing.learned.weights import PolicyWeights
from slimscale.routing.policy import PodView, RequestView
from slimscale.routing.registry import shielded
from slimscale.simulate.routing.engine import advance_to_next_arrival, apply_action
from slimscale.simulate.routing.scene import Scene
from slimscale.simulate.routing.state import SNAPSHOTS, WIDTHS, Plane
from slimscale.simulate.routing.view import fill_observation

__all__ = ["Deployed", "run_deployed"]


@dataclass(frozen=True, slots=True)
class Deployed:
    value: float
    """J of a request."""
    overruled: Mapping[str, int]
    """Choices that the shield did not let stand, by reason."""
    stood: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def run_deployed(
    weights: PolicyWeights, scene: Scene, plane: Plane, *, warm_seconds: float, seed: int = 1
) -> Deployed:
    """Route a whole trace on a fresh plane by the router's own decision code.

    `warm_seconds`: requests that arrive sooner do not count.
    """
    s, requests, look = plane.state[0], plane.requests, plane.look
    learned = AmortisedRouter(
        weights,
        widths=scene.widths,
        max_batch_rows=scene.max_batch_rows,
        objective=Objective(
            accuracy=scene.objective.accuracy,
            latency=scene.objective.latency,
            energy=scene.objective.energy * scene.regime.energy_times,
            miss=scene.objective.miss,
        ),
    )
    views = _Views(plane, scene)
    learned.follow(views.slowdowns)
    policy = shielded(learned, max_batch_rows=scene.max_batch_rows)
    rng = Random(seed)  # noqa: S311 - a simulation is to be repeatable
    models = {width.model: index for index, width in enumerate(scene.widths)}
    while True:
        request = advance_to_next_arrival(s, requests)
        if request < 0:
            break
        fill_observation(s, requests, request, look)
        klass = scene.classes[int(requests.each["klass"][request])]
        learned.arrived(1, now=float(s["now"]))
        wanted = RequestView(
            1,
            float(look.request[layout.REQUEST_SLACK_SECONDS]),
            klass.slo_seconds,
            klass.min_accuracy,
        )
        route = policy.choose(wanted, views.now(), scene.widths, rng)
        device, width, cap, hold, expected = 0, 0, scene.max_batch_rows, 0, 0.0
        if route is not None:
            device, width = views.names.index(route.pod), models[route.width.model]
            cap, hold = route.batch_cap, int(route.hold_seconds > 0.0)
            expected = route.expected_seconds
        apply_action(s, requests, request, device, width, cap, hold, expected)
    overruled = {str(name): count for name, count in policy.overruled.items()}
    counted = requests.of("arrival") >= warm_seconds
    value = float(requests.of("value")[counted].mean())
    return Deployed(value, overruled, policy.stood)


class _Views:
    """What a router would have of the devices, from the telemetry that has reached it."""

    def __init__(self, plane: Plane, scene: Scene) -> None:
        self._state = plane.state[0]
        self._look = plane.look
        self._scene = scene
        self.names = [f"{index}-{device.name}" for index, device in enumerate(scene.devices)]
        self._told: list[tuple[int, PodTelemetry] | None] = [None] * len(self.names)

    def slowdowns(self) -> dict[str, float]:
        return dict(zip(self.names, self._state["slowdown"].tolist(), strict=False))

    def now(self) -> list[PodView]:
        return [self._view(index) for index in range(len(self.names))]

    def _view(self, index: int) -> PodView:
        s, figures = self._state, self._look.pods[index]
        telemetry = self._telemetry(index)
        place = int(s["known"][index]) % SNAPSHOTS * WIDTHS
        received = s["told_received"][index, place : place + WIDTHS]
        sent = s["sent"][index]
        return PodView(
            self.names[index],
            "any",
            telemetry,
            float(figures[layout.POD_AGE_SECONDS]),
            {
                width.model: int(sent[w] - received[w])
                for w, width in enumerate(self._scene.widths)
                if sent[w] > received[w]
            },
            power_watts=self._scene.devices[index].dynamic_watts,
            ejected=bool(s["down"][index]),
            overdue_seconds=float(figures[layout.POD_OVERDUE_SECONDS]),
        )

    def _telemetry(self, index: int) -> PodTelemetry:
        """The same object while it is the same telemetry: estimates are remembered by it."""
        s, known = self._state, int(self._state["known"][index])
        kept = self._told[index]
        if kept is not None and kept[0] == known:
            return kept[1]
        device, place = self._scene.devices[index], known % SNAPSHOTS
        cells = slice(place * WIDTHS, place * WIDTHS + len(self._scene.widths))
        queued, scale, load = (
            s[name][index, cells].tolist() for name in ("told_queued", "told_scale", "told_load")
        )
        telemetry = PodTelemetry(
            tuple(
                WidthTelemetry(
                    width.model, int(load[w] == 0.0), False, int(queued[w]), 0,
                    base_seconds=device.base_seconds * scale[w],
                    row_seconds=device.row_seconds * width.flops_ratio * scale[w],
                    load_seconds=load[w],
                )
                for w, width in enumerate(self._scene.widths)
            ),
            float(s["told_backlog"][index, place]),
        )  # fmt: skip
        self._told[index] = (known, telemetry)
        return telemetry
