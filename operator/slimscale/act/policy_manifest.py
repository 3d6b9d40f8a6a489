"""The ConfigMap that holds a learned policy, as `routing.learned.policyConfigMap` names it. Pure."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from slimscale.api.serving_config import POLICY_CARD_KEY, POLICY_MOST_BYTES, POLICY_WEIGHTS_KEY
from slimscale.exceptions import SlimError
from slimscale.kubeapi.ports import Json

__all__ = ["policy_config_map"]


def policy_config_map(
    name: str, *, data: bytes, card: Mapping[str, Any], namespace: str = ""
) -> Json:
    """Weights and card, with the weights' digest in the card: routers refuse a card of another file.

    namespace empty: the one that it is applied in.

    Raises:
        SlimError: it is too large for a ConfigMap.
    """
    text = json.dumps({**card, "sha256": hashlib.sha256(data).hexdigest()}, indent=1)
    size = len(data) + len(text.encode())
    if size > POLICY_MOST_BYTES:
        raise SlimError(
            f"the policy has {size} bytes, a ConfigMap takes {POLICY_MOST_BYTES}; train a smaller"
            " network"
        )
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {POLICY_CARD_KEY: text},
        "binaryData": {POLICY_WEIGHTS_KEY: b64encode(data).decode()},
    }
