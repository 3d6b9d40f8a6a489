"""What the chart lets the operator do: the permissions table and nothing else, narrowed further."""

from collections.abc import Iterable
from typing import Any

import pytest

from slimscale.act.permissions import PERMISSIONS, Scope
from slimscale.api.names import (
    LABEL_INJECT,
    WEBHOOK_INJECT_PATH,
    WEBHOOK_VALIDATE_INFERENCE_PATH,
    WEBHOOK_VALIDATE_PATH,
)
from tests.support.helm import Document, render

pytestmark = pytest.mark.timeout(900)

Rule = tuple[str, str, frozenset[str], bool]
CLUSTER_RBAC = {"ClusterRole", "ClusterRoleBinding"}


def of_kind(documents: Iterable[Document], *kinds: str) -> list[Document]:
    return [document for document in documents if document["kind"] in kinds]


def rules(role: Document) -> set[Rule]:
    return {
        (group, resource, frozenset(rule["verbs"]), bool(rule.get("resourceNames")))
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def table(*scopes: Scope) -> set[Rule]:
    return {
        (rule.api_group, rule.resource, frozenset(rule.verbs), bool(rule.names))
        for rule in PERMISSIONS
        if rule.scope in scopes
    }


def test_cluster_wide_roles_equal_the_permissions_table() -> None:
    documents = render()
    [cluster_role] = of_kind(documents, "ClusterRole")
    [role] = of_kind(documents, "Role")
    assert rules(cluster_role) == table(Scope.WATCHED, Scope.CLUSTER)
    assert rules(role) == table(Scope.OWN)
    assert role["metadata"]["namespace"] == "slimscale"


def test_with_a_list_of_namespaces_there_are_roles_alone() -> None:
    documents = render(values="namespaced")
    assert of_kind(documents, *CLUSTER_RBAC) == []
    by_namespace: dict[str, set[Rule]] = {}
    for role in of_kind(documents, "Role"):
        by_namespace.setdefault(role["metadata"]["namespace"], set()).update(rules(role))
    watched = table(Scope.WATCHED)
    assert by_namespace == {"sims": watched, "more-sims": watched, "slimscale": table(Scope.OWN)}


@pytest.mark.parametrize("values", ["default", "namespaced", "everything"])
def test_no_wildcard_and_no_way_to_more_rights(values: str) -> None:
    for role in of_kind(render(values=values), "Role", "ClusterRole"):
        for rule in role["rules"]:
            said = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert "*" not in said
            assert not {"bind", "escalate", "impersonate"} & set(rule["verbs"])
            assert not {"pods/exec", "serviceaccounts/token", "pods/ephemeralcontainers"} & said


@pytest.mark.parametrize("values", ["default", "namespaced", "everything"])
def test_secrets_are_read_by_name_in_the_own_namespace_alone(values: str) -> None:
    documents = render(values=values)
    environment = {
        entry["name"]: entry.get("value")
        for d in of_kind(documents, "Deployment")
        for entry in d["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    for role in of_kind(documents, "Role", "ClusterRole"):
        for rule in role["rules"]:
            if "secrets" not in rule["resources"]:
                continue
            assert role["metadata"].get("namespace") == "slimscale"
            if rule["verbs"] != ["create"]:  # the name of a new object cannot be given
                assert rule["resourceNames"] == [environment["SLIMSCALE_WEBHOOK_SECRET"]]


def test_named_rights_name_the_objects_that_the_chart_makes() -> None:
    documents = render(values="everything")
    names = {(d["kind"], d["metadata"]["name"]) for d in documents}
    [cluster_role] = of_kind(documents, "ClusterRole")
    for rule in cluster_role["rules"]:
        for name in rule.get("resourceNames", ()):
            kind = {
                "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
                "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
            }[rule["resources"][0]]
            assert (kind, name) in names


@pytest.mark.parametrize("values", ["default", "namespaced", "everything"])
def test_every_binding_gives_its_role_to_the_operators_account(values: str) -> None:
    documents = render(values=values)
    [pod] = [d["spec"]["template"]["spec"] for d in of_kind(documents, "Deployment")]
    roles = {
        (d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"])
        for d in of_kind(documents, "Role", "ClusterRole")
    }
    bound = set()
    for binding in of_kind(documents, "RoleBinding", "ClusterRoleBinding"):
        [subject] = binding["subjects"]
        assert subject["name"] == pod["serviceAccountName"]
        assert subject["namespace"] == "slimscale"
        reference = binding["roleRef"]
        bound.add((reference["kind"], binding["metadata"].get("namespace"), reference["name"]))
    assert bound == roles


def webhooks(values: str, kind: str) -> list[dict[str, Any]]:
    return [
        webhook
        for document in of_kind(render(values=values), kind)
        for webhook in document["webhooks"]
    ]


@pytest.mark.parametrize("values", ["default", "namespaced", "everything"])
def test_the_pod_webhook_can_hold_nothing_up(values: str) -> None:
    [webhook] = webhooks(values, "MutatingWebhookConfiguration")
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 2)
    assert webhook["objectSelector"] == {"matchLabels": {LABEL_INJECT: "true"}}
    [rule] = webhook["rules"]
    assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])
    assert webhook["clientConfig"]["service"]["path"] == WEBHOOK_INJECT_PATH
    excluded = {
        value
        for expression in webhook["namespaceSelector"]["matchExpressions"]
        if expression["operator"] == "NotIn"
        for value in expression["values"]
    }
    assert {"kube-system", "kube-public", "kube-node-lease", "slimscale"} <= excluded


@pytest.mark.parametrize("values", ["default", "namespaced", "everything"])
def test_the_validating_webhooks_see_our_own_kinds_alone(values: str) -> None:
    paths = {}
    for webhook in webhooks(values, "ValidatingWebhookConfiguration"):
        assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 2)
        [rule] = webhook["rules"]
        assert rule["apiGroups"] == ["slimscale.dev"]
        paths[tuple(rule["resources"])] = webhook["clientConfig"]["service"]["path"]
    assert paths == {
        ("simworkloads",): WEBHOOK_VALIDATE_PATH,
        ("sliminferences",): WEBHOOK_VALIDATE_INFERENCE_PATH,
    }


def test_webhooks_of_a_namespaced_install_select_its_namespaces_alone() -> None:
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for webhook in webhooks("namespaced", kind):
            chosen = [
                e for e in webhook["namespaceSelector"]["matchExpressions"] if e["operator"] == "In"
            ]
            assert [e["values"] for e in chosen] == [["sims", "more-sims"]]


def test_without_cluster_rights_the_chart_makes_the_certificate_itself() -> None:
    import base64

    from slimscale.act.certificates import bundle_from_secret

    documents = render(values="namespaced")
    [secret] = of_kind(documents, "Secret")
    bundle = bundle_from_secret(secret["data"])
    assert bundle is not None, "the operator would issue another one, which nobody trusts"
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        found = webhooks("namespaced", kind)
        assert found
        for webhook in found:
            assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == bundle.ca_certificate


def test_the_charts_certificate_is_for_the_names_that_the_operator_wants() -> None:
    from datetime import UTC, datetime

    from slimscale.act.certificates import bundle_from_secret, issue, needs_renewal
    from slimscale.controllers.certificates import WebhookIdentity

    documents = render(values="namespaced")
    [secret] = of_kind(documents, "Secret")
    [service] = [s for s in of_kind(documents, "Service") if "webhook" in s["metadata"]["name"]]
    identity = WebhookIdentity(
        namespace="slimscale",
        service=service["metadata"]["name"],
        secret=secret["metadata"]["name"],
        mutating_configuration="",
        validating_configuration="",
    )
    bundle = bundle_from_secret(secret["data"])
    assert bundle is not None
    now = datetime.now(UTC)
    assert not needs_renewal(bundle, identity.dns_names, now)
    # and the operator can renew it under the same CA
    renewed = issue(identity.dns_names, now=now, previous=bundle)
    assert renewed.ca_certificate == bundle.ca_certificate


def test_every_policy_is_bound_and_holds_for_the_operator_alone() -> None:
    documents = render()
    policies = of_kind(documents, "ValidatingAdmissionPolicy")
    bindings = of_kind(documents, "ValidatingAdmissionPolicyBinding")
    assert {b["spec"]["policyName"] for b in bindings} == {p["metadata"]["name"] for p in policies}
    assert all(b["spec"]["validationActions"] == ["Deny"] for b in bindings)
    for policy in policies:
        # further conditions only leave something to another policy
        conditions = policy["spec"]["matchConditions"]
        assert [c["expression"] for c in conditions if c["name"] == "is-the-operator"] == [
            "request.userInfo.username == 'system:serviceaccount:slimscale:slimscale-operator'"
        ]


def test_every_write_of_objects_that_may_be_foreign_meets_a_policy() -> None:
    operations = {"CREATE": "create", "UPDATE": "patch", "DELETE": "delete"}
    covered = {
        (resource, operations[operation])
        for policy in of_kind(render(), "ValidatingAdmissionPolicy")
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }
    written = {
        (rule.resource, verb)
        for rule in PERMISSIONS
        for verb in rule.verbs
        if verb in operations.values() and rule.scope is not Scope.OWN and not rule.names
    }
    ours = {
        ("simworkloads/status", "patch"), ("sliminferences/status", "patch"),
        ("events", "create"), ("events", "patch"),
    }  # fmt: skip
    assert written - ours - covered == set()


def test_the_resources_of_a_policy_are_in_its_groups() -> None:
    known = {(rule.api_group, rule.resource) for rule in PERMISSIONS}
    for policy in of_kind(render(), "ValidatingAdmissionPolicy"):
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
            for resource in rule["resources"]:
                assert any((group, resource) in known for group in rule["apiGroups"]), resource
