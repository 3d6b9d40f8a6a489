"""Names and labels of a SlimInference's children: valid, unique, and the same after each restart."""

import re
from dataclasses import dataclass

from slimscale.act.child_names import MAX_NAME_LENGTH, child_name, owner_label
from slimscale.api.names import FIELD_MANAGER, LABEL_INFERENCE, LABEL_POOL, LABEL_ROLE

__all__ = ["POOL_ROLE", "ROUTER_ROLE", "InferenceNames"]

ROUTER_ROLE = "router"
POOL_ROLE = "pool"
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class InferenceNames:
    """Everything that is named after one SlimInference. owner: its name, up to 253 characters."""

    owner: str

    @property
    def front(self) -> str:
        """The Service that clients call: the owner's name wherever a Service may have it."""
        fits = len(self.owner) <= MAX_NAME_LENGTH and _DNS_LABEL.fullmatch(self.owner)
        return self.owner if fits else child_name(self.owner, "front")

    @property
    def router(self) -> str:
        """Deployment, budget, account, role and policy of the router."""
        return child_name(self.owner, "router")

    @property
    def endpoints(self) -> str:
        """The headless Service whose EndpointSlices list the pods of all pools."""
        return child_name(self.owner, "pods")

    @property
    def metrics(self) -> str:
        return child_name(self.owner, "metrics")

    @property
    def config(self) -> str:
        return child_name(self.owner, "config")

    def pool(self, pool: str) -> str:
        """Deployment and budget of a pool."""
        return child_name(self.owner, f"pool-{pool}")

    @property
    def selector(self) -> dict[str, str]:
        """Labels of all children and pods of this owner."""
        return {LABEL_INFERENCE: owner_label(self.owner)}

    def role_selector(self, role: str, pool: str = "") -> dict[str, str]:
        """Labels of the pods of the router, of all pools, or of one."""
        return self.selector | {LABEL_ROLE: role} | ({LABEL_POOL: pool} if pool else {})

    def labels(self, role: str = "", pool: str = "") -> dict[str, str]:
        """Of a child or a pod template."""
        return {
            "app.kubernetes.io/name": "slimscale-inference",
            "app.kubernetes.io/managed-by": FIELD_MANAGER,
            **({LABEL_ROLE: role} if role else {}),
            **({LABEL_POOL: pool} if pool else {}),
            **self.selector,
        }
