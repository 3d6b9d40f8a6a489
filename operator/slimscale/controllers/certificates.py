"""Keeps the webhook's certificate: in a Secret, in the live TLS server, in the configurations.

All replicas share the Secret; who loses the race to create or renew it takes what the winner wrote.
"""

import base64
import contextlib
import logging
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slimscale.act.certificates import (
    CertificateBundle,
    bundle_from_secret,
    issue,
    needs_renewal,
    secret_data,
)
from slimscale.domain.clock import Clock
from slimscale.exceptions import Conflict, SlimError
from slimscale.kubeapi import paths
from slimscale.kubeapi.ports import KubeClient

__all__ = ["CertificateKeeper", "WebhookIdentity"]

_LOG = logging.getLogger(__name__)
_ADMISSION = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class WebhookIdentity:
    """Where the webhook lives: all names are the chart's."""

    namespace: str
    service: str
    secret: str
    mutating_configuration: str
    validating_configuration: str

    @property
    def dns_names(self) -> tuple[str, ...]:
        short = f"{self.service}.{self.namespace}.svc"
        return (short, f"{short}.cluster.local", f"{self.service}.{self.namespace}")


class CertificateKeeper:
    """`refresh` makes everything right and is called again and again; it never raises twice the same.

    The SSL context is the live server's: loading a new pair into it serves new handshakes with it
    while connections that stand go on.
    """

    def __init__(
        self,
        *,
        client: KubeClient,
        identity: WebhookIdentity,
        context: ssl.SSLContext,
        clock: Clock,
        on_expiry: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self._client = client
        self._identity = identity
        self._context = context
        self._clock = clock
        self._on_expiry = on_expiry
        self._served: bytes = b""

    async def refresh(self) -> None:
        """Load or issue the certificate, serve it, and put its CA into the configurations.

        Raises:
            SlimError: the API server could not be asked; what is served stays as it was.
        """
        bundle = await self._current_bundle()
        self._serve(bundle)
        self._on_expiry(bundle.expires_at.timestamp())
        identity = self._identity
        for plural, name in (
            ("mutatingwebhookconfigurations", identity.mutating_configuration),
            ("validatingwebhookconfigurations", identity.validating_configuration),
        ):
            if name:
                await self._trust(plural, name, bundle.trusted)

    async def _current_bundle(self) -> CertificateBundle:
        identity = self._identity
        path = paths.item("v1", "secrets", identity.secret, identity.namespace)
        for _attempt in range(3):
            now = datetime.fromtimestamp(self._clock.now_seconds(), UTC)
            secret = await self._client.get(path)
            bundle = bundle_from_secret((secret or {}).get("data") or {})
            if bundle is not None and not needs_renewal(bundle, identity.dns_names, now):
                return bundle
            fresh = issue(identity.dns_names, now=now, previous=bundle)
            with contextlib.suppress(Conflict):  # another replica was first: read what it wrote
                await self._store(path, secret, fresh)
                _LOG.info("webhook certificate issued", extra={"secret": identity.secret})
                return fresh
        raise SlimError(f"Secret {identity.secret} keeps changing under us; trying again later")

    async def _store(
        self, path: str, secret: dict[str, Any] | None, bundle: CertificateBundle
    ) -> None:
        identity = self._identity
        if secret is None:
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/tls",
                "metadata": {
                    "name": identity.secret,
                    "namespace": identity.namespace,
                    "labels": {"app.kubernetes.io/managed-by": "slimscale"},
                },
                "data": secret_data(bundle),
            }
            await self._client.create(paths.collection("v1", "secrets", identity.namespace), body)
        else:
            await self._client.replace(path, {**secret, "data": secret_data(bundle)})

    def _serve(self, bundle: CertificateBundle) -> None:
        if bundle.certificate == self._served:
            return
        # ssl reads key pairs from files alone; the folder is private and gone at once
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_bytes(bundle.key + bundle.certificate)
            self._context.load_cert_chain(pair)
        self._served = bundle.certificate

    async def _trust(self, plural: str, name: str, trusted: bytes) -> None:
        """Put the CA into each webhook of a chart-managed configuration; none there is fine."""
        path = paths.item(_ADMISSION, plural, name)
        configuration = await self._client.get(path)
        if configuration is None:
            return
        wanted = base64.b64encode(trusted).decode()
        webhooks = configuration.get("webhooks") or []
        stale = [w for w in webhooks if (w.get("clientConfig") or {}).get("caBundle") != wanted]
        if not stale:
            return
        body = {
            "metadata": {
                "uid": configuration["metadata"]["uid"],
                "resourceVersion": configuration["metadata"]["resourceVersion"],
            },
            # a merge patch replaces lists whole, so each entry goes back as it was read
            "webhooks": [
                {**w, "clientConfig": {**(w.get("clientConfig") or {}), "caBundle": wanted}}
                for w in webhooks
            ],
        }
        await self._client.merge_patch(path, body)
        _LOG.info("webhook configuration trusts our CA", extra={"configuration": name})
