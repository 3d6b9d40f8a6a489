"""URL paths of the API server. Every segment is quoted: a name can never reach another path."""

from urllib.parse import quote

__all__ = ["collection", "item"]


def collection(api_version: str, plural: str, namespace: str | None = None) -> str:
    """Path of a list: `collection("apps/v1", "deployments", "default")`.

    api_version is `v1` for the core group, `group/version` otherwise. namespace None is
    cluster-wide.
    """
    group, _, version = api_version.rpartition("/")
    root = (
        f"/apis/{quote(group, safe='')}/{quote(version, safe='')}" if group else f"/api/{version}"
    )
    if namespace is not None:
        root += f"/namespaces/{_segment(namespace)}"
    return f"{root}/{_segment(plural)}"


def item(
    api_version: str,
    plural: str,
    name: str,
    namespace: str | None = None,
    subresource: str | None = None,
) -> str:
    """Path of one object, or of its subresource: status, resize, scale."""
    path = f"{collection(api_version, plural, namespace)}/{_segment(name)}"
    return path if subresource is None else f"{path}/{_segment(subresource)}"


def _segment(text: str) -> str:
    if not text or text in {".", ".."}:
        raise ValueError(f"{text!r} is no name of a Kubernetes object")
    return quote(text, safe="")
