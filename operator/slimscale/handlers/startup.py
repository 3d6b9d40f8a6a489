"""kopf's settings and login. Whatever would make kopf write on users' objects is off."""

from typing import Any

import kopf
from kubernetes.aio.client import Configuration

__all__ = ["kopf_settings", "register"]

_FINALIZER = "slimscale.dev/unused"
"""Never set: no handler here needs one. Named, so that kopf's default cannot appear either."""


def kopf_settings() -> kopf.OperatorSettings:
    """Settings for `kopf.operator`, each that matters for a watch's life set explicitly."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True  # a Lease of our own decides who writes
    settings.scanning.disabled = True  # needs no rights on namespaces or CRDs
    settings.posting.enabled = False
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.watching.reconnect_backoff = 0.5
    settings.queueing.idle_timeout = 0.5  # workers hold nothing of ours: no need to linger
    settings.queueing.exit_timeout = 0.5
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.trust_env = False
    settings.persistence.finalizer = _FINALIZER
    settings.process.ultimate_exiting_timeout = 30
    return settings


def register(registry: kopf.OperatorRegistry, configuration: Configuration) -> None:
    """Log kopf in with the same credentials as our own client, read again whenever asked."""

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        scheme, _sep, token = (
            await configuration.get_api_key_with_prefix("BearerToken") or ""
        ).partition(" ")
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            scheme=scheme.capitalize() or None,
            token=token.strip() or None,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            proxy_url=configuration.proxy,
        )
