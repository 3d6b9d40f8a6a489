"""A request in the name of a service account; kubectl itself reads before it patches."""

import json
from typing import Any

from kubernetes import config

from e2e.guard import require_kind_context
from e2e.paths import CONTEXT, KUBECONFIG

STRATEGIC = "application/strategic-merge-patch+json"


def patch_as(account: str, pod: str, subresource: str, document: dict[str, Any]) -> str:
    """PATCH `NAMESPACE/POD`, or a subresource of it; what the API server refused, or nothing."""
    namespace, name = pod.split("/")
    context = require_kind_context(CONTEXT)
    api = config.new_client_from_config(  # type: ignore[no-untyped-call]
        config_file=str(KUBECONFIG), context=context
    )
    path = "/".join(("", "api", "v1", "namespaces", namespace, "pods", name))
    headers = {"Impersonate-User": account, "Content-Type": STRATEGIC, "Accept": "application/json"}
    url = api.configuration.host + (f"{path}/{subresource}" if subresource else path)
    try:
        answer = api.call_api("PATCH", url, headers, body=document, _request_timeout=30)
        answer.read()
    finally:
        api.close()
    if answer.status < 400:
        return ""
    said: dict[str, Any] = json.loads(answer.data)
    return str(said.get("message", answer.reason))
