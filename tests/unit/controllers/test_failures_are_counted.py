"""A13: who only looks at metrics sees that something is tried again and again, and why."""

import asyncio
from random import Random

from prometheus_client import CollectorRegistry

from slimscale.act.metrics import OperatorMetrics
from slimscale.controllers.queue import Key, WorkQueue
from slimscale.controllers.reporting import QueueMetrics
from slimscale.exceptions import Conflict
from tests.support.virtual_time import run_virtual


def test_each_failed_reconcile_is_counted_by_its_kind() -> None:
    registry = CollectorRegistry()
    attempts = 0

    async def reconcile(_key: Key) -> float | None:
        nonlocal attempts
        attempts += 1
        raise Conflict("someone was first")

    async def main() -> None:
        observer = QueueMetrics(OperatorMetrics(registry))
        queue = WorkQueue(reconcile, rng=Random(1), observer=observer)
        running = asyncio.create_task(queue.run())
        queue.wake(("ns", "ants"))
        await asyncio.sleep(60)
        running.cancel()

    run_virtual(main())
    counted = registry.get_sample_value("slimscale_reconcile_errors_total", {"reason": "Conflict"})
    assert counted == attempts
    assert attempts > 3
