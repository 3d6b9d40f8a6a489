"""What only the router's pod knows: environment variables. All else is in router.json."""

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from slimscale.api.serving_config import ROUTER_CONFIG_FILE, ROUTER_PORT, ROUTER_STATUS_PORT
from slimscale.serving.router.endpoints import Endpoint

__all__ = ["RouterSettings"]

Port = Annotated[int, Field(ge=0, le=65535)]


class RouterSettings(BaseSettings):
    """Prefix SLIMSCALE_. In a cluster the defaults and the pod's name are enough."""

    model_config = SettingsConfigDict(
        env_prefix="SLIMSCALE_", extra="ignore", frozen=True, populate_by_name=True
    )

    pod_name: str = Field(default="router", max_length=253)
    config: Path = Path(ROUTER_CONFIG_FILE)
    host: str = Field(default="", description="Address to listen on; empty: every one.")
    port: Port = ROUTER_PORT
    status_port: Port = ROUTER_STATUS_PORT
    log_level: str = Field(default="INFO", pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")

    endpoints: str = Field(
        default="",
        description="Pods, instead of asking the API server: name=host:port, separated by commas.",
    )
    api_host: str = Field(
        default="",
        validation_alias=AliasChoices("SLIMSCALE_API_HOST", "KUBERNETES_SERVICE_HOST"),
    )
    api_port: Port = Field(
        default=443, validation_alias=AliasChoices("SLIMSCALE_API_PORT", "KUBERNETES_SERVICE_PORT")
    )
    service_account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    """Folder with `token` and `ca.crt`."""

    drain_wait_seconds: float = Field(
        default=3.0, ge=0, le=300,
        description="After SIGTERM: time to serve on while this router leaves the endpoints.",
    )  # fmt: skip
    drain_seconds: float = Field(
        default=30.0, ge=0, le=3600, description="Then: time for requests to end."
    )

    @field_validator("endpoints")
    @classmethod
    def _are_endpoints(cls, value: str) -> str:
        _parse(value)
        return value

    def fixed_endpoints(self) -> dict[str, Endpoint]:
        return _parse(self.endpoints)


def _parse(text: str) -> dict[str, Endpoint]:
    found = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, address = entry.partition("=")
        host, _, port = address.rpartition(":")
        if not name or not host or not port.isdigit():
            raise ValueError(f"{entry!r} is no endpoint; write name=host:port")
        found[name] = Endpoint(name, host.strip("[]"), int(port), ready=True)
    return found
