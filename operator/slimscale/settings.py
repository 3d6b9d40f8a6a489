"""The operator's settings: environment variables with the prefix SLIMSCALE_, set by the chart."""

from pathlib import Path
from typing import Annotated, Self
from uuid import uuid4

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from slimscale.api.names import SYSTEM_NAMESPACES

__all__ = ["OperatorSettings"]

Port = Annotated[int, Field(ge=0, le=65535)]


class OperatorSettings(BaseSettings):
    """What users of the operator set once. Nothing of it can come from a custom resource."""

    model_config = SettingsConfigDict(env_prefix="SLIMSCALE_", extra="ignore", frozen=True)

    namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Namespaces to watch, separated by commas; empty: all."
    )
    own_namespace: str = Field(default="slimscale", description="Where the operator itself runs.")
    pod_name: str = Field(default="slimscale-operator", description="For the lease and the logs.")
    kubeconfig: str = Field(default="", description="Outside a cluster: a kubeconfig file.")
    kube_context: str = Field(default="", description="Outside a cluster: a context in it.")

    lease_enabled: bool = True
    lease_name: str = "slimscale-operator"

    prometheus_url: str = Field(
        default="", description="For metrics.source Prometheus; http:// or https://."
    )
    prometheus_token_file: Path | None = Field(
        default=None, description="File with a bearer token for Prometheus, read for each query."
    )
    prometheus_timeout_seconds: float = Field(default=5.0, gt=0, le=60)

    bind_address: str = "0.0.0.0"  # noqa: S104 - the kubelet and Prometheus come from outside
    health_port: Port = 8081
    metrics_port: Port = 8080
    webhook_port: Port = 9443

    log_level: str = Field(default="INFO", pattern=r"^(DEBUG|INFO|WARNING|ERROR)$")
    resync_seconds: float = Field(default=60.0, ge=1, le=3600)
    workers: int = Field(default=4, ge=1, le=64)

    dataplane_image: str = Field(
        default="slimscale/dataplane:latest",
        description="Router and batching sidecar of every SlimInference.",
    )
    modelserver_image: str = Field(
        default="slimscale/modelserver:latest",
        description="Model server of every SlimInference that names no image of its own.",
    )
    image_pull_policy: str = Field(
        default="IfNotPresent", pattern=r"^(Always|IfNotPresent|Never)$",
        description="Of the two images.",
    )  # fmt: skip
    metrics_namespaces: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Besides our own: namespaces whose pods may read a SlimInference's metrics.",
    )
    scaling_interval_seconds: float = Field(
        default=10.0,
        ge=1,
        le=300,
        description="Between two looks at a SlimInference that has pods and does not change.",
    )

    scrape_timeout_seconds: float = Field(default=3.0, gt=0, le=30)
    scrape_limit_bytes: int = Field(default=2**20, ge=1024, le=2**26)
    scrape_concurrency: int = Field(default=32, ge=1, le=1024)

    watch_silence_seconds: float = Field(
        default=300.0, ge=30, description="A watch silent for longer fails the liveness probe."
    )

    predictor: str = Field(
        default="operator-network", pattern=r"^(operator-network|analytic)$",
        description="Which model predicts; the network falls back to the analytic one by itself.",
    )  # fmt: skip

    webhook_enabled: bool = True
    webhook_service: str = "slimscale-webhook"
    webhook_secret: str = "slimscale-webhook-tls"  # noqa: S105 - a name
    webhook_mutating_configuration: str = ""
    webhook_validating_configuration: str = ""

    @field_validator("namespaces", "metrics_namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @model_validator(mode="after")
    def _ports_differ(self) -> Self:
        ports = [port for port in (self.health_port, self.metrics_port, self.webhook_port) if port]
        if len(set(ports)) != len(ports):
            raise ValueError("health, metrics and webhook need ports of their own")
        return self

    @property
    def never_namespaces(self) -> tuple[str, ...]:
        """Where nothing is changed even if a SimWorkload is there: the system's and our own."""
        return (*SYSTEM_NAMESPACES, self.own_namespace)

    def identity(self) -> str:
        """Unique to this process: a container that restarts in its pod is another holder."""
        return f"{self.pod_name}_{uuid4().hex[:8]}"
