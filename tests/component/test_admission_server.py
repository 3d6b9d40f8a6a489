"""The admission server over real TLS, as the API server talks to it."""

import asyncio
import base64
import copy
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest

from slimscale.act.certificates import SERVING_LIFE
from slimscale.act.injection import InjectionChoice
from slimscale.controllers.certificates import CertificateKeeper, WebhookIdentity
from slimscale.controllers.injection_catalog import CatalogEntry, InjectionCatalog
from slimscale.handlers.admission import AdmissionServer, serving_context
from slimscale.kubeapi import paths
from tests.support.fake_kube import FakeKube
from tests.support.inferences import sliminference

IDENTITY = WebhookIdentity(
    namespace="slimscale",
    service="slimscale-webhook",
    secret="slimscale-webhook-tls",
    mutating_configuration="slimscale-inject",
    validating_configuration="slimscale-validate",
)
ADMISSION = "admissionregistration.k8s.io/v1"
MUTATING = paths.item(ADMISSION, "mutatingwebhookconfigurations", "slimscale-inject")


@dataclass
class FrozenClock:
    seconds: float = datetime(2026, 1, 1, tzinfo=UTC).timestamp()

    def now_seconds(self) -> float:
        return self.seconds

    def monotonic_seconds(self) -> float:
        return self.seconds


def trusted(kube: FakeKube) -> str:
    """What the API server trusts for the webhook, base64."""
    configuration = kube.peek(MUTATING)
    assert configuration is not None
    return str(configuration["webhooks"][0]["clientConfig"]["caBundle"])


class BrokenCatalog(InjectionCatalog):
    def lookup(self, *, namespace: str, labels: dict[str, str]) -> InjectionChoice | None:
        raise RuntimeError("our own fault")


@dataclass
class Webhook:
    kube: FakeKube
    clock: FrozenClock
    keeper: CertificateKeeper
    port: int

    def client_context(self) -> ssl.SSLContext:
        """Trusts exactly what the configuration's caBundle says, as the API server does."""
        bundle = trusted(self.kube)
        context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
        # the frozen clock of the test is not the time at which TLS checks validity
        context.verify_flags |= 0x200000  # X509_V_FLAG_NO_CHECK_TIME
        return context

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        connector = aiohttp.TCPConnector(ssl=self.client_context())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(
                f"https://127.0.0.1:{self.port}{path}",
                data=body if isinstance(body, bytes) else json.dumps(body),
                server_hostname="slimscale-webhook.slimscale.svc",
                headers={"Content-Type": "application/json"},
            ) as response,
        ):
            return response.status, await response.json()


async def start(
    catalog: InjectionCatalog, kube: FakeKube, clock: FrozenClock
) -> tuple[Any, Webhook]:
    context = serving_context()
    keeper = CertificateKeeper(client=kube, identity=IDENTITY, context=context, clock=clock)
    await keeper.refresh()
    server = AdmissionServer(catalog=catalog, never_namespaces=("kube-system", "slimscale"))
    port = await server.start(host="127.0.0.1", port=0, context=context)
    return server, Webhook(kube=kube, clock=clock, keeper=keeper, port=port)


@pytest.fixture
def kube() -> FakeKube:
    fake = FakeKube()
    for plural, name in (
        ("mutatingwebhookconfigurations", "slimscale-inject"),
        ("validatingwebhookconfigurations", "slimscale-validate"),
    ):
        fake.add(
            paths.item(ADMISSION, plural, name),
            {
                "apiVersion": ADMISSION,
                "kind": "X",
                "metadata": {"name": name},
                "webhooks": [{"name": "a", "clientConfig": {"service": {"name": "s"}}}],
            },
        )
    return fake


@pytest.fixture
async def webhook(kube: FakeKube) -> AsyncIterator[Webhook]:
    catalog = InjectionCatalog()
    choice = InjectionChoice(container="sim", set_values=True, threads=3)
    catalog.update(("sims", "ant"), CatalogEntry("app=ant", choice))
    server, webhook = await start(catalog, kube, FrozenClock())
    yield webhook
    await server.stop()


def pod_review(namespace: str = "sims") -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "namespace": namespace,
            "operation": "CREATE",
            "object": {
                "metadata": {"labels": {"app": "ant", "slimscale.dev/inject": "true"}},
                "spec": {"containers": [{"name": "sim", "image": "x"}]},
            },
        },
    }


def spec_review(**spec: Any) -> dict[str, Any]:
    review = pod_review()
    review["request"]["object"] = {
        "apiVersion": "slimscale.dev/v1alpha1",
        "kind": "SimWorkload",
        "metadata": {"name": "ant", "namespace": spec.pop("namespace", "sims")},
        "spec": {"targetRef": {"name": "ant"}, **spec},
    }
    return review


async def test_a_pod_of_a_target_is_patched_over_trusted_tls(webhook: Webhook) -> None:
    status, body = await webhook.post("/inject-pod", pod_review())
    assert status == 200
    response = body["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == (
        "u-1",
        True,
        "JSONPatch",
    )
    assert "OMP_NUM_THREADS" in base64.b64decode(response["patch"]).decode()


async def test_a_bad_spec_is_refused_with_field_value_and_remedy(webhook: Webhook) -> None:
    _, body = await webhook.post("/validate-simworkload", spec_review(threads={"min": 0}))
    assert body["response"]["allowed"] is False
    assert "spec.threads.min 0" in body["response"]["status"]["message"]


async def test_a_good_spec_and_a_deletion_are_allowed(webhook: Webhook) -> None:
    _, body = await webhook.post("/validate-simworkload", spec_review())
    assert body["response"] == {"uid": "u-1", "allowed": True}
    deletion = spec_review()
    deletion["request"]["object"] = None
    _, body = await webhook.post("/validate-simworkload", deletion)
    assert body["response"]["allowed"] is True


async def test_a_simworkload_in_a_system_namespace_is_refused(webhook: Webhook) -> None:
    _, body = await webhook.post("/validate-simworkload", spec_review(namespace="kube-system"))
    assert body["response"]["allowed"] is False
    assert "kube-system" in body["response"]["status"]["message"]


@pytest.mark.parametrize(
    ("namespace", "fields", "words"),
    [
        ("sims", {}, ""),
        ("sims", {"pools": [{"name": "a", "maxReplicas": 0}]}, "spec.pools[0].maxReplicas 0"),
        ("kube-system", {}, "nothing is served from there"),
    ],
)
async def test_sliminferences_are_judged_on_a_path_of_their_own(
    webhook: Webhook, namespace: str, fields: dict[str, Any], words: str
) -> None:
    review = {"request": {"uid": "u-1", "object": sliminference(namespace=namespace, **fields)}}
    _, body = await webhook.post("/validate-sliminference", review)
    assert body["response"]["allowed"] is (not words)
    assert words in body["response"].get("status", {}).get("message", "")


@pytest.mark.parametrize("namespace", ["sims", "kube-system"])
async def test_an_object_that_came_in_unchecked_can_still_be_deleted_and_labelled(
    webhook: Webhook, namespace: str
) -> None:
    """A cascading deletion in the foreground ends with an update that drops a finalizer."""
    review = spec_review(namespace=namespace, threads={"min": 0})
    request = review["request"]
    request["oldObject"] = copy.deepcopy(request["object"])
    request["object"]["metadata"]["labels"] = {"team": "a"}
    _, body = await webhook.post("/validate-simworkload", review)
    assert body["response"]["allowed"] is True
    request["object"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    request["object"]["spec"]["suspend"] = True
    _, body = await webhook.post("/validate-simworkload", review)
    assert body["response"]["allowed"] is True


async def test_an_update_to_a_bad_spec_is_refused(webhook: Webhook) -> None:
    review = spec_review(threads={"min": 0})
    review["request"]["oldObject"] = spec_review()["request"]["object"]
    _, body = await webhook.post("/validate-simworkload", review)
    assert body["response"]["allowed"] is False


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"request": {}}', b"\xff\xfe"])
async def test_what_is_no_review_gets_400(webhook: Webhook, body: bytes) -> None:
    status, _ = await webhook.post("/inject-pod", body)
    assert status == 400


async def test_a_fault_of_ours_lets_the_pod_through_unchanged(kube: FakeKube) -> None:
    server, webhook = await start(BrokenCatalog(), kube, FrozenClock())
    try:
        _, body = await webhook.post("/inject-pod", pod_review())
    finally:
        await server.stop()
    assert body["response"]["allowed"] is True
    assert "patch" not in body["response"]
    assert body["response"]["warnings"]


async def test_a_restart_keeps_the_certificate_that_clients_trust(kube: FakeKube) -> None:
    first, one = await start(InjectionCatalog(), kube, FrozenClock())
    await first.stop()
    bundle = trusted(kube)
    second, two = await start(InjectionCatalog(), kube, one.clock)
    try:
        status, _ = await two.post("/inject-pod", pod_review())
    finally:
        await second.stop()
    assert status == 200
    assert trusted(kube) == bundle


async def test_two_replicas_that_start_together_agree_on_one_ca(kube: FakeKube) -> None:
    clock = FrozenClock()
    keepers = [
        CertificateKeeper(client=kube, identity=IDENTITY, context=serving_context(), clock=clock)
        for _ in range(2)
    ]
    await asyncio.gather(*(keeper.refresh() for keeper in keepers))
    secret = kube.peek(paths.item("v1", "secrets", IDENTITY.secret, IDENTITY.namespace))
    assert secret is not None
    assert trusted(kube) == secret["data"]["ca.crt"]


async def test_a_renewed_certificate_is_served_without_a_restart(webhook: Webhook) -> None:
    def served() -> bytes:
        import socket

        context = webhook.client_context()
        with (
            socket.create_connection(("127.0.0.1", webhook.port)) as raw,
            context.wrap_socket(raw, server_hostname="slimscale-webhook.slimscale.svc") as tls,
        ):
            return tls.getpeercert(binary_form=True) or b""

    before = await asyncio.to_thread(served)
    webhook.clock.seconds += (SERVING_LIFE * 0.8).total_seconds()
    await webhook.keeper.refresh()
    assert await asyncio.to_thread(served) != before


async def test_a_configuration_that_was_reset_is_mended(webhook: Webhook) -> None:
    webhook.kube.edit(
        MUTATING, lambda found: found["webhooks"][0]["clientConfig"].update(caBundle="")
    )
    await webhook.keeper.refresh()
    status, _ = await webhook.post("/inject-pod", pod_review())
    assert status == 200


async def test_without_configurations_the_certificate_is_kept_all_the_same() -> None:
    kube = FakeKube()
    expiries: list[float] = []
    keeper = CertificateKeeper(
        client=kube,
        identity=IDENTITY,
        context=serving_context(),
        clock=FrozenClock(),
        on_expiry=expiries.append,
    )
    await keeper.refresh()
    expected = FrozenClock().seconds + SERVING_LIFE / timedelta(seconds=1)
    assert expiries == [pytest.approx(expected)]
