"""Where nothing changes, nothing is written: no status loop, no fight, no load on the API server."""

from typing import Any

import pytest

from e2e.conftest import Cluster
from e2e.eventually import consistently, eventually
from e2e.kubectl import Kubectl
from e2e.simworkloads import memo, operator_metrics, pods, start, wait_settled, workload
from e2e.workloads import contract_server, simworkload

QUIET_SECONDS = 120.0
SETTLED_SECONDS = 40.0


@pytest.mark.smoke
def test_a_settled_workload_causes_no_write_in_two_minutes(
    cluster: Cluster, kubectl: Kubectl
) -> None:
    start(kubectl, "sim", *contract_server("sim", cluster.images["simserver"]))
    kubectl.apply(simworkload("sim", "sim"))
    wait_settled(kubectl, "sim", "sim", unlike=16)

    def versions() -> dict[str, str]:
        objects: dict[str, dict[str, Any]] = {
            "simworkload": workload(kubectl, "sim").raw,
            "deployment": kubectl.get("deployment", "sim"),
            "memo": memo(kubectl, "sim"),
            **{p.name: p.raw for p in pods(kubectl, "sim")},
        }
        return {name: one["metadata"]["resourceVersion"] for name, one in objects.items()}

    def writes() -> dict[str, float]:
        counted = operator_metrics(cluster.operator)
        return {
            series: value
            for series, value in counted.items()
            if series.startswith("slimscale_api_writes_total")
        }

    # A saving may follow the first change, and the last figures are smoothed for a while.
    def still() -> tuple[dict[str, str], dict[str, float]]:
        before = versions(), writes()
        consistently(lambda: True, SETTLED_SECONDS)
        assert (versions(), writes()) == before
        return before

    objects, counts = eventually(still, 240)
    assert counts, "the operator counts its writes"

    def unchanged() -> bool:
        assert versions() == objects
        return True

    consistently(unchanged, QUIET_SECONDS, interval_seconds=5)
    assert writes() == counts
