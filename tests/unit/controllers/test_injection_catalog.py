"""The webhook finds the SimWorkload of a pod by the target's selector."""

from datetime import UTC, datetime

import pytest

from slimscale.act.injection import InjectionChoice
from slimscale.api.simworkload import SimWorkload
from slimscale.controllers.injection_catalog import (
    CatalogEntry,
    InjectionCatalog,
    entry_from_status,
    selects,
)


@pytest.mark.parametrize(
    ("selector", "labels", "taken"),
    [
        ("app=ant", {"app": "ant", "x": "y"}, True),
        ("app==ant", {"app": "ant"}, True),
        ("app=ant", {"app": "bee"}, False),
        ("app=ant,tier=sim", {"app": "ant"}, False),
        ("app in (ant,bee)", {"app": "bee"}, True),
        ("app in (ant,bee),tier", {"app": "bee"}, False),
        ("app notin (ant, bee)", {"app": "bee"}, False),
        ("app notin (ant, bee)", {}, True),
        ("app!=ant", {"app": "bee"}, True),
        ("!app", {"app": "bee"}, False),
        ("app", {"app": "bee"}, True),
        ("", {"app": "bee"}, False),
    ],
)
def test_selectors_take_what_kubectl_would_take(
    selector: str, labels: dict[str, str], taken: bool
) -> None:
    assert selects(selector, labels) is taken


def test_a_pod_of_another_namespace_is_not_found() -> None:
    catalog = InjectionCatalog()
    catalog.update(("a", "one"), CatalogEntry("app=ant", InjectionChoice(container="sim")))
    assert catalog.lookup(namespace="b", labels={"app": "ant"}) is None
    assert catalog.lookup(namespace="a", labels={"app": "ant"}) == InjectionChoice(container="sim")


def test_a_removed_simworkload_is_forgotten() -> None:
    catalog = InjectionCatalog()
    catalog.update(("a", "one"), CatalogEntry("app=ant", InjectionChoice(container="sim")))
    catalog.remove(("a", "one"))
    catalog.remove(("a", "never-there"))
    assert catalog.lookup(namespace="a", labels={"app": "ant"}) is None


def test_of_two_simworkloads_the_first_by_name_answers_whatever_the_order() -> None:
    entries = {
        ("a", "two"): CatalogEntry("app=ant", InjectionChoice(container="two")),
        ("a", "one"): CatalogEntry("app=ant", InjectionChoice(container="one")),
    }
    for order in (list(entries), list(reversed(entries))):
        catalog = InjectionCatalog()
        for key in order:
            catalog.update(key, entries[key])
        found = catalog.lookup(namespace="a", labels={"app": "ant"})
        assert found is not None
        assert found.container == "one"


def workload(mode: str, **spec: object) -> SimWorkload:
    return SimWorkload.model_validate(
        {
            "metadata": {"name": "ant", "namespace": "a"},
            "spec": {"targetRef": {"name": "ant"}, "updatePolicy": {"mode": mode}, **spec},
            "status": {
                "selector": "app=ant",
                "target": {"threads": 4, "cpuLimit": "1500m", "cpuRequest": "1"},
                "lastChanged": datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
            },
        }
    )


def test_after_a_restart_the_last_target_comes_from_status() -> None:
    entry = entry_from_status(workload("Initial", containerName="sim"))
    assert entry is not None
    assert entry.choice.set_values
    assert (entry.choice.threads, entry.choice.cpu_limit_millicores) == (4, 1500)
    assert entry.choice.cpu_request_millicores == 1000


@pytest.mark.parametrize("workload_", [workload("Off"), workload("InPlace", suspend=True)])
def test_mode_off_and_suspend_set_nothing(workload_: SimWorkload) -> None:
    entry = entry_from_status(workload_)
    assert entry is not None
    assert not entry.choice.set_values


def test_under_keep_the_cpu_of_new_pods_stays() -> None:
    entry = entry_from_status(workload("InPlace", cpu={"limitPolicy": "Keep"}))
    assert entry is not None
    assert entry.choice.cpu_limit_millicores is None
    assert entry.choice.threads == 4


def test_a_target_that_was_never_resolved_gives_no_entry() -> None:
    bare = workload("InPlace").model_copy(
        update={
            "status": SimWorkload.model_validate(
                {"metadata": {"name": "a", "namespace": "a"}, "spec": {"targetRef": {"name": "x"}}}
            ).status
        }
    )
    assert entry_from_status(bare) is None
