"""Which instance a pod loads or unloads next, within memory and utilisation limits.

A model that requests wait for and that is cold is loaded first of all; another instance of a busy
model comes only where the device has room that is known. None is unknown and never counts as idle:
without a figure for utilisation or memory no further instance is loaded, and nothing is evicted for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Change", "DeviceView", "InstanceLimits", "InstanceStep", "ModelView", "next_step"]


class Change(StrEnum):
    LOAD = "Load"
    UNLOAD = "Unload"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class ModelView:
    """One width model as the sidecar sees it."""

    model: str
    instances: int
    loading: bool
    running: int
    """Batches in flight."""
    queued_rows: int
    idle_seconds: float
    """Since it last had something queued or running; 0 while it has."""
    memory_bytes: int | None = None
    """Of one instance, measured or from the model's card."""
    warm: bool = False
    """True: keep at least one instance (preloaded widths)."""


@dataclass(frozen=True, slots=True)
class DeviceView:
    utilisation: float | None
    memory_free_bytes: int | None


@dataclass(frozen=True, slots=True)
class InstanceLimits:
    max_instances: int
    unload_after_seconds: float
    memory_reserve_bytes: int
    max_utilisation: float
    full_rows: int
    """Rows of a full batch: so many must wait before another instance pays."""
    evict_after_seconds: float = 2.0
    """An instance that has been idle for less is not taken away for another width: no thrashing."""


@dataclass(frozen=True, slots=True)
class InstanceStep:
    """`reason` is for the log and for people."""

    change: Change
    model: str = ""
    reason: str = ""


def next_step(
    models: Sequence[ModelView], device: DeviceView, limits: InstanceLimits
) -> InstanceStep:
    """One step; ask again once it is done. While something loads nothing else is begun."""
    if any(model.loading for model in models):
        return InstanceStep(Change.NONE, reason="an instance is loading")
    cold = [model for model in models if model.queued_rows and not model.instances]
    if cold:
        return _load_cold(max(cold, key=lambda model: model.queued_rows), models, device, limits)
    busy = _most_pressed(models, limits)
    if busy is not None and _has_room(busy, device, limits):
        return InstanceStep(Change.LOAD, busy.model, "all its instances are busy")
    idle = _longest_idle(models, limits.unload_after_seconds)
    if idle is not None:
        return InstanceStep(Change.UNLOAD, idle.model, f"idle for {idle.idle_seconds:.0f} s")
    return InstanceStep(Change.NONE, reason="nothing to do")


def _load_cold(
    cold: ModelView, models: Sequence[ModelView], device: DeviceView, limits: InstanceLimits
) -> InstanceStep:
    # Unknown memory does not refuse a first instance: there is no other way to serve the request,
    # and the model server itself says no where there is no room.
    if device.memory_free_bytes is None or cold.memory_bytes is None:
        return InstanceStep(Change.LOAD, cold.model, "requests wait for it; memory is unknown")
    if device.memory_free_bytes - cold.memory_bytes >= limits.memory_reserve_bytes:
        return InstanceStep(Change.LOAD, cold.model, "requests wait for it")
    victim = _longest_idle(models, limits.evict_after_seconds, any_last=True)
    if victim is not None:
        return InstanceStep(Change.UNLOAD, victim.model, f"{cold.model} needs its memory")
    return InstanceStep(Change.NONE, reason=f"no memory for {cold.model} and nothing is idle")


def _most_pressed(models: Sequence[ModelView], limits: InstanceLimits) -> ModelView | None:
    pressed = [
        model
        for model in models
        if 0 < model.instances < limits.max_instances
        and model.running >= model.instances
        and model.queued_rows >= limits.full_rows
    ]
    return max(pressed, key=lambda model: model.queued_rows, default=None)


def _has_room(model: ModelView, device: DeviceView, limits: InstanceLimits) -> bool:
    if device.utilisation is None or device.memory_free_bytes is None:
        return False
    if model.memory_bytes is None or not 0.0 <= device.utilisation < limits.max_utilisation:
        return False
    return device.memory_free_bytes - model.memory_bytes >= limits.memory_reserve_bytes


def _longest_idle(
    models: Sequence[ModelView], after_seconds: float, *, any_last: bool = False
) -> ModelView | None:
    """A model that may lose an instance. A pod keeps one warm width, unless memory is needed."""
    warm_models = sum(1 for model in models if model.instances)
    idle = [
        model
        for model in models
        if model.instances
        and not model.running
        and not model.queued_rows
        and model.idle_seconds >= after_seconds
        and (model.instances > 1 or any_last or (warm_models > 1 and not model.warm))
    ]
    return max(idle, key=lambda model: model.idle_seconds, default=None)
