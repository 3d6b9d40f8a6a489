"""The table that the chart's RBAC equals: least rights, each with a reason."""

import pytest

from slimscale.act.permissions import PERMISSIONS, Permission, Scope, allowed


@pytest.mark.parametrize("rule", PERMISSIONS, ids=lambda r: f"{r.resource}-{'-'.join(r.verbs)}")
def test_no_rule_is_wider_than_its_reason(rule: Permission) -> None:
    assert rule.why
    assert "*" not in (rule.api_group, rule.resource, *rule.verbs)
    assert "deletecollection" not in rule.verbs
    if "delete" in rule.verbs:  # what a pool that is no longer asked for consists of
        assert rule.resource in ("deployments", "poddisruptionbudgets", "pods")
    assert not {"bind", "escalate", "impersonate"} & set(rule.verbs)
    assert rule.resource not in ("pods/exec", "pods/eviction", "serviceaccounts/token")


def test_secrets_are_reached_by_name_in_our_own_namespace_only() -> None:
    for rule in PERMISSIONS:
        if rule.resource == "secrets":
            assert rule.scope is Scope.OWN
            assert rule.names or rule.verbs == ("create",)
            assert "list" not in rule.verbs
            assert "watch" not in rule.verbs


def test_webhook_configurations_are_changed_by_name_only() -> None:
    for rule in PERMISSIONS:
        if rule.api_group == "admissionregistration.k8s.io":
            assert rule.names


def test_custom_resources_are_never_written_except_their_status() -> None:
    assert not allowed("patch", "simworkloads")
    assert not allowed("update", "simworkloads")
    assert allowed("patch", "simworkloads/status")


def test_targets_whose_template_never_rolls_are_not_written() -> None:
    assert not allowed("patch", "replicasets")
    assert allowed("patch", "statefulsets")
