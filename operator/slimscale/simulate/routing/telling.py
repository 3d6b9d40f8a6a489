"""Telemetry on its way from a device to the router."""

from typing import Any

import numpy as np

from slimscale.simulate.routing.compiled import compiled
from slimscale.simulate.routing.state import SNAPSHOTS, WIDTHS

__all__ = ["tell"]


@compiled
def tell(s: Any, device: int) -> None:
    """Telemetry leaves the device now; the router has it `delay` seconds later."""
    s.told[device] += 1
    place = s.told[device] % SNAPSHOTS
    first = place * WIDTHS
    backlog = 0.0
    if s.busy_until[device] < np.inf:  # as the device expects it, not as it will be
        width = s.run_width[device]
        lasts = s.base[device, width] + s.row[device, width] * s.run_rows[device]
        backlog = max(0.0, s.run_began[device] + lasts * s.scale[device, width] - s.now)
    for width in range(s.widths):
        queued = s.queued[device, width]
        if queued > 0:
            batches = (queued + s.max_rows - 1) // s.max_rows
            work = batches * s.base[device, width] + queued * s.row[device, width]
            backlog += work * s.scale[device, width]
        load = 0.0
        if s.warm[device, width] == 0:
            load = s.load[device, width]
            if s.load_width[device] == width:
                load = max(0.0, s.load_until[device] - s.now)
        s.told_queued[device, first + width] = queued
        s.told_received[device, first + width] = s.received[device, width]
        s.told_scale[device, first + width] = s.scale[device, width]
        s.told_load[device, first + width] = load
    s.told_at[device, place] = s.now
    s.told_backlog[device, place] = backlog
