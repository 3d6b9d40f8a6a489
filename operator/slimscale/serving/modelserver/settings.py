"""What only the pod knows: from environment variables with the prefix SLIMSCALE_."""

from ipaddress import ip_address
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from slimscale.api.serving_config import MODELSERVER_CONFIG_FILE, MODELSERVER_PORT

__all__ = ["ModelServerSettings"]


class ModelServerSettings(BaseSettings):
    """All else is in modelserver.json."""

    model_config = SettingsConfigDict(env_prefix="SLIMSCALE_", extra="ignore", frozen=True)

    pod_name: str = Field(default="", description="Said in the log alone.")
    config: Path = Path(MODELSERVER_CONFIG_FILE)
    modelserver_host: str = Field(
        default="127.0.0.1",
        description="A loopback address: this port loads and unloads models.",
    )
    modelserver_port: int = Field(default=MODELSERVER_PORT, ge=0, le=65535)
    host: str | None = Field(
        default=None, description="Of metrics and probes; none: all addresses."
    )
    metrics_port: int = Field(
        default=9464,
        ge=0,
        le=65535,
        description="Metrics and probes, where the contract of SimWorkload has them. Read-only.",
    )
    nvidia_devices: str | None = Field(
        default=None,
        description="UUIDs or indices of the GPUs to look at, else CUDA_VISIBLE_DEVICES or"
        " NVIDIA_VISIBLE_DEVICES, else all that are visible.",
    )
    log_level: str = "INFO"

    @field_validator("modelserver_host")
    @classmethod
    def _loopback_only(cls, host: str) -> str:
        try:
            inside = ip_address(host).is_loopback
        except ValueError:
            inside = host == "localhost"
        if not inside:
            raise ValueError(
                f"{host}: not a loopback address; other pods must not load or unload models,"
                " so use 127.0.0.1 or ::1"
            )
        return host
