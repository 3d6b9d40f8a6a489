"""Slim Scheduler's decisions: which pod, width and batch cap a request gets, and what a pod runs next.

Pure: time, randomness and settings are arguments. The router and the sidecar call these functions,
and the simulator calls the same ones.
"""
