"""G1: helm may leave an old CRD in place, which drops what it does not know without a word."""

import copy
import json
import logging

import pytest
from kubernetes.aio.client import Configuration
from prometheus_client import CollectorRegistry

from slimscale.act.metrics import OperatorMetrics
from slimscale.api.crd import simworkload_crd
from slimscale.controllers.crd_check import missing_fields, report_missing_fields
from slimscale.exceptions import Unavailable
from slimscale.kubeapi.client import AioKubeClient
from slimscale.kubeapi.ports import Json
from tests.component.test_operator_loop import eventually, operator
from tests.support.fake_api_server import fake_api_server

pytestmark = pytest.mark.component
PATH = "/openapi/v3/apis/slimscale.dev/v1alpha1"


def published() -> Json:
    """As API servers publish it: our schema beside others'."""
    schema = copy.deepcopy(simworkload_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    kind = {"group": "slimscale.dev", "version": "v1alpha1", "kind": "SimWorkload"}
    schema["x-kubernetes-group-version-kind"] = [kind]
    schema["properties"]["metadata"] = {"allOf": [{"$ref": "#/components/schemas/ObjectMeta"}]}
    return {
        "components": {
            "schemas": {
                "io.k8s.ObjectMeta": {"type": "object", "properties": {"name": {}}},
                "dev.slimscale.v1alpha1.SimWorkload": schema,
            }
        }
    }


def without(*path: str) -> Json:
    document = published()
    node = document["components"]["schemas"]["dev.slimscale.v1alpha1.SimWorkload"]
    for part in path[:-1]:
        node = node["items"] if part == "[]" else node["properties"][part]
    del node["properties"][path[-1]]
    return document


def test_the_same_schema_lacks_nothing() -> None:
    assert missing_fields(published()) == ()


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (without("spec", "threads", "processesPerPod"), ("spec.threads.processesPerPod",)),
        (without("status", "confidence"), ("status.confidence",)),
        (without("status", "pods", "[]", "name"), ("status.pods[].name",)),
    ],
)
def test_each_field_that_an_older_one_lacks_is_named(
    document: Json, expected: tuple[str, ...]
) -> None:
    assert missing_fields(document) == expected


def test_a_whole_block_that_is_missing_is_named_with_what_is_in_it() -> None:
    missing = missing_fields(without("spec", "tuning")) or ()
    assert "spec.tuning" in missing
    assert "spec.tuning.windowSeconds" in missing


@pytest.mark.parametrize("document", [None, {}, {"components": {"schemas": {"other": {}}}}])
def test_a_server_that_publishes_nothing_is_no_mismatch(document: Json | None) -> None:
    assert missing_fields(document) is None


async def test_it_is_said_loudly_at_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "slimscale")
    async with operator(document_at=(PATH, without("spec", "tuning"))) as running:
        await eventually(lambda: "older than the operator" in caplog.text)
        [record] = [r for r in caplog.records if "older than the operator" in r.message]
        assert "spec.tuning" in json.dumps(vars(record), default=str)
        served = running.context.registry.get_sample_value("slimscale_crd_missing_fields")
        assert served is not None
        assert served > 0


async def test_an_answer_that_never_comes_is_told_and_taken_for_no_missing_field(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "slimscale")
    registry = CollectorRegistry()
    metrics = OperatorMetrics(registry)
    async with fake_api_server() as api:
        client = AioKubeClient(Configuration(host=api.url))
        try:
            await report_missing_fields(client, metrics.crd_missing_fields.set)

            async def broken(path: str) -> Json | None:
                raise Unavailable("gone")

            client.get = broken  # type: ignore[method-assign]
            await report_missing_fields(client, metrics.crd_missing_fields.set)

            async def odd(path: str) -> Json | None:
                return {"components": {"schemas": ["of", "another", "form"]}}

            client.get = odd  # type: ignore[method-assign]
            await report_missing_fields(client, metrics.crd_missing_fields.set)
        finally:
            await client.close()
    assert registry.get_sample_value("slimscale_crd_missing_fields") == 0
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "the API server publishes no schema of SimWorkload"),
        ("WARNING", "the CRD cannot be compared with this release"),
        ("WARNING", "the CRD cannot be compared with this release"),
    ]
