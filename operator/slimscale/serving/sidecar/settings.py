"""What only the pod knows: from environment variables with the prefix SLIMSCALE_."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from slimscale.api.serving_config import (
    MODELSERVER_PORT,
    SIDECAR_CONFIG_FILE,
    SIDECAR_PORT,
    SIDECAR_STATUS_PORT,
)

__all__ = ["SidecarSettings"]


class SidecarSettings(BaseSettings):
    """All else is in sidecar.json."""

    model_config = SettingsConfigDict(env_prefix="SLIMSCALE_", extra="ignore", frozen=True)

    pod_name: str = Field(default="", description="Said on every reply.")
    pool: str = Field(default="", description="Pool of the pod, said on every reply.")
    config: Path = Path(SIDECAR_CONFIG_FILE)
    host: str | None = Field(default=None, description="To listen on; none: all addresses.")
    port: int = Field(default=SIDECAR_PORT, ge=0, le=65535)
    status_port: int = Field(default=SIDECAR_STATUS_PORT, ge=0, le=65535)
    modelserver_host: str = "127.0.0.1"
    modelserver_port: int = Field(default=MODELSERVER_PORT, ge=1, le=65535)
    drain_grace_seconds: float = Field(
        default=5.0, ge=0, le=300,
        description="After SIGTERM new requests are still taken for so long: endpoints lag behind.",
    )  # fmt: skip
    log_level: str = "INFO"
