"""What new pods get while somebody else acts, or only recommends, for the same target."""

from typing import Any

import pytest

from slimscale.act.injection import InjectionChoice
from slimscale.api.simworkload import SimWorkload
from slimscale.controllers.injection_catalog import (
    CatalogEntry,
    InjectionCatalog,
    entry_from_status,
)

RECOMMENDS = CatalogEntry("app=ant", InjectionChoice(container="sim"))
ACTS = CatalogEntry("app=ant", InjectionChoice(container="sim", set_values=True, threads=4))


@pytest.mark.parametrize("names", [("a-first", "b-second"), ("b-second", "a-first")])
def test_a_simworkload_that_only_recommends_does_not_keep_values_from_new_pods(
    names: tuple[str, str],
) -> None:
    catalog = InjectionCatalog()
    catalog.update(("ns", names[0]), RECOMMENDS)
    catalog.update(("ns", names[1]), ACTS)
    assert catalog.lookup(namespace="ns", labels={"app": "ant"}) == ACTS.choice
    catalog.remove(("ns", names[1]))
    assert catalog.lookup(namespace="ns", labels={"app": "ant"}) == RECOMMENDS.choice


@pytest.mark.parametrize(
    ("status", "reason", "sets"),
    [
        ("False", "HorizontalPodAutoscalerOnCPU", False),
        ("False", "SecondSimWorkload", False),
        ("False", "OtherManagerReverts", True),
        ("True", "NoOtherOwner", True),
    ],
)
def test_after_a_restart_another_owner_is_still_not_overruled(
    status: str, reason: str, sets: bool
) -> None:
    condition: dict[str, Any] = {
        "type": "NoConflict",
        "status": status,
        "reason": reason,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    known = SimWorkload.model_validate(
        {
            "metadata": {"name": "ant", "namespace": "ns"},
            "spec": {"targetRef": {"name": "ant"}, "updatePolicy": {"mode": "InPlace"}},
            "status": {
                "selector": "app=ant",
                "target": {"threads": 4, "cpuLimit": "2"},
                "conditions": [condition],
            },
        }
    )
    entry = entry_from_status(known)
    assert entry is not None
    assert entry.choice.set_values is sets
