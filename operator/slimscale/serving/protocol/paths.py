"""Paths of the protocol: `/v2/models/<model>[/versions/<version>]/infer` and its siblings."""

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from urllib.parse import unquote

__all__ = ["Endpoint", "Resource", "parse_path"]


class Resource(Enum):
    LIVE = auto()
    READY = auto()
    SERVER = auto()
    MODEL = auto()
    MODEL_READY = auto()
    INFER = auto()
    REPOSITORY_INDEX = auto()
    LOAD = auto()
    UNLOAD = auto()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`model` and `version` are empty where the path has none."""

    resource: Resource
    model: str = ""
    version: str = ""

    @property
    def method(self) -> bytes:
        """The one method that the resource takes."""
        return b"POST" if self.resource in _POSTED else b"GET"


_POSTED = {Resource.INFER, Resource.REPOSITORY_INDEX, Resource.LOAD, Resource.UNLOAD}
_FIXED = {
    ("v2",): Resource.SERVER,
    ("v2", "health", "live"): Resource.LIVE,
    ("v2", "health", "ready"): Resource.READY,
    ("v2", "repository", "index"): Resource.REPOSITORY_INDEX,
}
_OF_MODEL = {(): Resource.MODEL, ("ready",): Resource.MODEL_READY, ("infer",): Resource.INFER}
_OF_REPOSITORY = {"load": Resource.LOAD, "unload": Resource.UNLOAD}


@lru_cache(maxsize=256)
def parse_path(path: str) -> Endpoint | None:
    """What a path names; None: nothing of the protocol."""
    parts = tuple(unquote(part) for part in path.strip("/").split("/"))
    fixed = _FIXED.get(parts)
    if fixed is not None:
        return Endpoint(fixed)
    match parts:
        case ("v2", "repository", "models", model, verb) if model and verb in _OF_REPOSITORY:
            return Endpoint(_OF_REPOSITORY[verb], model)
        case ("v2", "models", model, "versions", version, *rest) if model and version:
            resource = _OF_MODEL.get(tuple(rest))
            return None if resource is None else Endpoint(resource, model, version)
        case ("v2", "models", model, *rest) if model:
            resource = _OF_MODEL.get(tuple(rest))
            return None if resource is None else Endpoint(resource, model)
        case _:
            return None
