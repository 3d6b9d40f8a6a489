"""The admission server as one of the operator's tasks, its certificate kept fresh."""

import asyncio
import logging

from slimscale.controllers.certificates import CertificateKeeper, WebhookIdentity
from slimscale.controllers.context import AppContext
from slimscale.exceptions import SlimError
from slimscale.handlers.admission import AdmissionServer, serving_context

__all__ = ["serve_admission"]

_log = logging.getLogger(__name__)
_REFRESH_SECONDS = 60.0
_RETRY_SECONDS = 5.0
_PART = "webhook"


async def serve_admission(context: AppContext) -> None:
    """Serve as soon as there is a certificate; look after it until cancelled."""
    settings = context.settings
    tls = serving_context()
    keeper = CertificateKeeper(
        client=context.client,
        identity=WebhookIdentity(
            namespace=settings.own_namespace,
            service=settings.webhook_service,
            secret=settings.webhook_secret,
            mutating_configuration=settings.webhook_mutating_configuration,
            validating_configuration=settings.webhook_validating_configuration,
        ),
        context=tls,
        clock=context.clock,
        on_expiry=context.metrics.certificate_expiry.set,
    )
    server = AdmissionServer(
        catalog=context.catalog,
        never_namespaces=settings.never_namespaces,
    )
    listening = False
    # Not ready before it listens: else new pods are sent here, get no answer and start as they are.
    context.heartbeat.outage(_PART)
    try:
        while True:
            pause = _REFRESH_SECONDS
            try:
                await keeper.refresh()
                if not listening:
                    await server.start(
                        host=settings.bind_address, port=settings.webhook_port, context=tls
                    )
                    listening = True
                    context.heartbeat.drop(_PART)
            except SlimError as error:
                if not listening:
                    context.heartbeat.outage(_PART)
                _log.warning("webhook certificate not refreshed", extra={"error": str(error)})
                pause = _RETRY_SECONDS
            await asyncio.sleep(pause)
    finally:
        await server.stop()
