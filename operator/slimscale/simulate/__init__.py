"""Discrete-event simulation of a pod's threads. Needs the extra `simulate`; the operator does not."""
