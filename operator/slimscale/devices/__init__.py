"""Reads devices: GPUs by NVML, memory and CPU of the container by its cgroup."""
