"""Where the end-to-end tests keep things: nothing of the user's own set-up is written."""

import os
from pathlib import Path

ROOT = Path(__file__).parent.parent
STATE = Path(os.environ.get("SLIMSCALE_E2E_STATE", ROOT / "e2e" / ".state"))
KUBECONFIG = STATE / "kubeconfig"
ARTIFACTS = STATE / "artifacts"
LOGS = STATE / "logs"

CLUSTER = os.environ.get("SLIMSCALE_E2E_CLUSTER", "slimscale-e2e")
CONTEXT = f"kind-{CLUSTER}"

CACHE = Path(
    os.environ.get("SLIMSCALE_E2E_CACHE")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slimscale-e2e"
)
BIN = CACHE / "bin"


def search_path() -> str:
    """PATH with the cached tools first."""
    return f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
