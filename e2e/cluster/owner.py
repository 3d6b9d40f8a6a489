"""Which checkout a cluster belongs to: two of them share its name, and one must not remake the other's."""

from pathlib import Path

from e2e.cluster.host import HostLacks

__all__ = ["claim", "release", "require_ours"]


def claim(register: Path, cluster: str, state: Path) -> None:
    """Write down that `cluster` was made by the checkout that keeps its state in `state`."""
    register.mkdir(parents=True, exist_ok=True)
    (register / cluster).write_text(f"{state.resolve()}\n")


def release(register: Path, cluster: str) -> None:
    (register / cluster).unlink(missing_ok=True)


def require_ours(register: Path, cluster: str, state: Path) -> None:
    """Refuse to touch a running cluster that another checkout still has on its books.

    Raises:
        HostLacks: it has; the message names that checkout and both ways out.
    """
    try:
        owner = Path((register / cluster).read_text().strip())
    except OSError:
        return
    if owner == state.resolve() or not (owner / "cluster.json").is_file():
        return  # ours, or of a checkout that is gone
    raise HostLacks(
        f"the cluster {cluster} belongs to another checkout, which keeps its state in {owner}; run"
        " `make clean` there, or name a second cluster: SLIMSCALE_E2E_CLUSTER=slimscale-2"
    )
