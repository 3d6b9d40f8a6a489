"""Where each figure of an observation stands: one layout for the router, the simulator and training.

All arrays are float64, C order. P pods, W widths (in the order of the service). Every place is always
filled with a finite number; what is unknown has the value that its line names.

    cells    (P, W, CELLS)    a pod and a width
    pods     (P, PODS)        a pod
    widths   (W, WIDTHS)      a width, the same for every pod
    request  (REQUEST,)       the request to route
    service  (SERVICE,)       the service as a whole, and what its owner wants
    mask     (P, W) bool      True: may take the request (pod there, width deployed, accurate enough)

An action is (pod, width, cap, hold): the pod and width that get the request, the most rows of a batch
that it may be part of, and whether the pod may wait for a fuller batch because of it.
"""

from typing import Final

__all__ = ["ACTION_CAPS", "ACTION_HOLDS", "CELLS", "PODS", "REQUEST", "SERVICE", "WIDTHS"]

CELL_SERVICE_SECONDS: Final = 0
"""A batch of one row: base + row."""
CELL_ROW_SECONDS: Final = 1
"""Each further row of a batch: b rows take CELL_SERVICE_SECONDS + (b - 1) * CELL_ROW_SECONDS."""
CELL_QUEUED_ROWS: Final = 2
"""Waiting at the pod for this width: told by telemetry, plus sent since by this router."""
CELL_WARM: Final = 3
"""1: an instance is loaded (also where nothing is known: a ready pod has one), 0: cold."""
CELL_LOAD_SECONDS: Final = 4
"""Until an instance could run a batch; 0 where one is loaded."""
CELLS: Final = 5

POD_DRAIN_SECONDS: Final = 0
"""Until the pod would begin a new request: told backlog less the telemetry's age (not below 0), plus
the rows sent since, in batches of the most rows, plus POD_OVERDUE_SECONDS. Loads are not in it."""
POD_AGE_SECONDS: Final = 1
"""Of the telemetry."""
POD_IN_FLIGHT_ROWS: Final = 2
"""Sent by this router and not yet counted by telemetry, all widths."""
POD_OVERDUE_SECONDS: Final = 3
"""How far the oldest unanswered request is past the time at which its answer was expected; 0."""
POD_EJECTED: Final = 4
"""1: an outlier that gets nothing (then the mask of its cells is False), else 0."""
POD_DYNAMIC_WATTS: Final = 5
"""While it computes, above idle; 0 where unknown, and then its energy counts for nothing."""
POD_SLOWDOWN: Final = 6
"""Recent latencies of its answers over what had been expected of them; 1 where unknown."""
POD_LINK_SECONDS: Final = 7
"""There and back."""
PODS: Final = 8

WIDTH_ACCURACY: Final = 0
"""Share of the test set answered right, 0 to 1."""
WIDTH_FLOPS_RATIO: Final = 1
"""Relative to the widest."""
WIDTHS: Final = 2

REQUEST_SLACK_SECONDS: Final = 0
"""What is left until its deadline."""
REQUEST_SLO_SECONDS: Final = 1
"""The latency that it asks for, from its arrival."""
REQUEST_ROWS: Final = 2
REQUEST_MIN_ACCURACY: Final = 3
REQUEST: Final = 4

SERVICE_ARRIVALS_FAST: Final = 0
"""Rows a second over the last `FAST_SECONDS` (`ArrivalRates`), this request's rows included."""
SERVICE_ARRIVALS_SLOW: Final = 1
"""The same over `SLOW_SECONDS`."""
SERVICE_BURSTINESS: Final = 2
"""SERVICE_ARRIVALS_FAST / SERVICE_ARRIVALS_SLOW; 1 before anything has arrived."""
SERVICE_PLANNED_LOAD: Final = 3
"""Rows a second for which the plan was made; SERVICE_ARRIVALS_SLOW where there is no plan."""
SERVICE_ACCURACY_WEIGHT: Final = 4
"""The four weights of the objective, see `Objective`."""
SERVICE_LATENCY_WEIGHT: Final = 5
SERVICE_ENERGY_WEIGHT: Final = 6
SERVICE_MISS_WEIGHT: Final = 7
SERVICE_MAX_BATCH_ROWS: Final = 8
SERVICE: Final = 9

ACTION_CAPS: Final = (1, 2, 4, 8, 16, 32)
ACTION_HOLDS: Final = 2
FAST_SECONDS: Final = 0.25
SLOW_SECONDS: Final = 5.0
