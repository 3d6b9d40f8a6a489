"""The admission server: AdmissionReview v1 over HTTPS, three fixed paths (ADR 0008).

Nothing here asks the API server, so an answer needs milliseconds. Whatever goes wrong inside, a
pod is let through unchanged, with a warning.
"""

import base64
import json
import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from aiohttp import web
from pydantic import ValidationError

from slimscale.act.injection import inject
from slimscale.api.names import (
    WEBHOOK_INJECT_PATH,
    WEBHOOK_VALIDATE_INFERENCE_PATH,
    WEBHOOK_VALIDATE_PATH,
)
from slimscale.api.simworkload import SimWorkload
from slimscale.api.sliminference import SlimInference
from slimscale.api.validation import (
    describe_errors,
    describe_never_namespace,
    describe_never_serving,
    validate_simworkload,
    validate_sliminference,
)
from slimscale.controllers.injection_catalog import InjectionCatalog

__all__ = ["AdmissionServer", "serving_context"]

_LOG = logging.getLogger(__name__)
_MAX_BODY_BYTES = 3 * 1024 * 1024
_MAX_MESSAGE = 2048

Answer = dict[str, Any]


def serving_context() -> ssl.SSLContext:
    """The server's TLS settings; the certificate is loaded into it later, and again at renewal."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class AdmissionServer:
    """Serves until `stop`. `never_namespaces`: whose pods are never touched."""

    def __init__(
        self,
        *,
        catalog: InjectionCatalog,
        never_namespaces: tuple[str, ...],
        on_review: Callable[[str, str], None] = lambda _kind, _result: None,
    ) -> None:
        self._catalog = catalog
        self._never_namespaces = never_namespaces
        self._on_review = on_review
        self._runner: web.AppRunner | None = None

    async def start(self, *, host: str, port: int, context: ssl.SSLContext) -> int:
        """Listen; return the port in use (for port 0)."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post(WEBHOOK_INJECT_PATH, self._answer(self._inject, "inject"))
        for path, validate, never in (
            (WEBHOOK_VALIDATE_PATH, validate_simworkload, describe_never_namespace),
            (WEBHOOK_VALIDATE_INFERENCE_PATH, validate_sliminference, describe_never_serving),
        ):
            judge = partial(self._validate, validate=validate, never=never)
            app.router.add_post(path, self._answer(judge, "validate"))
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port, ssl_context=context)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Finish what is under way, then stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _answer(
        self, decide: Callable[[dict[str, Any]], Answer], kind: str
    ) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.Response:
            try:
                review = await request.json()
                asked = review["request"]
                uid = str(asked["uid"])
            except (ValueError, KeyError, TypeError, UnicodeDecodeError):
                self._on_review(kind, "bad_request")
                return web.json_response({"message": "not an AdmissionReview v1"}, status=400)
            try:
                answer = decide(asked)
                result = "allowed" if answer.get("allowed") else "denied"
            except Exception:
                # fail open: our fault must not keep anyone's pod from starting
                _LOG.exception("admission failed", extra={"kind": kind})
                answer = {"allowed": True, "warnings": ["slimscale: internal error, unchanged"]}
                result = "error"
            self._on_review(kind, result)
            return web.json_response(
                {
                    "apiVersion": "admission.k8s.io/v1",
                    "kind": "AdmissionReview",
                    "response": {"uid": uid, **answer},
                }
            )

        return handle

    def _inject(self, asked: dict[str, Any]) -> Answer:
        pod, namespace = asked["object"], str(asked.get("namespace") or "")
        labels = (pod.get("metadata") or {}).get("labels") or {}
        choice = self._catalog.lookup(namespace=namespace, labels=labels)
        result = inject(
            pod, choice=choice, never_namespaces=self._never_namespaces, namespace=namespace
        )
        answer: Answer = {"allowed": True}
        if result.warnings:
            answer["warnings"] = [warning[:256] for warning in result.warnings]
        if result.patch:
            patch = json.dumps(list(result.patch)).encode()
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
        return answer

    def _validate(
        self,
        asked: dict[str, Any],
        *,
        validate: Callable[[dict[str, Any]], SimWorkload | SlimInference],
        never: Callable[[str], str],
    ) -> Answer:
        body = asked.get("object")
        if not isinstance(body, dict):  # a deletion has none
            return {"allowed": True}
        before = asked.get("oldObject")
        if "deletionTimestamp" in (body.get("metadata") or {}) or (
            isinstance(before, dict) and before.get("spec") == body.get("spec")
        ):
            # What came in while nobody looked must still be labelled, and lose its finalizers.
            return {"allowed": True}
        try:
            given = validate(body)
        except ValidationError as error:
            message = "; ".join(describe_errors(error))[:_MAX_MESSAGE]
            return {"allowed": False, "status": {"code": 422, "message": message}}
        if given.metadata.namespace in self._never_namespaces:
            message = never(given.metadata.namespace)
            return {"allowed": False, "status": {"code": 422, "message": message}}
        return {"allowed": True}
