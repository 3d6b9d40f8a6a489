"""A trace on the compiled data plane, routed by a rule."""

import numpy as np

from slimscale.simulate.routing.build import new_plane
from slimscale.simulate.routing.heuristics import SETTINGS, Kind, Setting, WidthRule, run_rule
from slimscale.simulate.routing.scene import Scene
from slimscale.simulate.routing.state import Plane
from slimscale.simulate.routing.traces import draw_trace

__all__ = ["route", "setting"]


def setting(
    rule: int = WidthRule.SLIMMEST,
    *,
    slack_share: float = 0.8,
    price: float = 0.0,
    hold_share: float = 0.0,
    cap: int = 32,
) -> np.ndarray:
    row = np.zeros(SETTINGS)
    row[Setting.RULE], row[Setting.COLD_AWARE], row[Setting.SLACK_SHARE] = rule, 1.0, slack_share
    row[Setting.PRICE], row[Setting.HOLD_SHARE], row[Setting.CAP] = price, hold_share, cap
    return row


def route(
    scene: Scene,
    *,
    rate: float,
    seconds: float = 5.0,
    seed: int = 1,
    kind: int = Kind.SED,
    row: np.ndarray | None = None,
) -> Plane:
    """The plane after the last request has ended."""
    trace = draw_trace(scene, rate, seconds, seed=seed)
    plane = new_plane(scene, trace.arrival, trace.klass, seed=seed, planned_load=rate)
    everything = np.ones(
        (len(scene.classes), len(scene.devices), len(scene.widths)), dtype=np.bool_
    )
    run_rule(plane, kind, setting() if row is None else row, everything)
    return plane
