"""Replicas of the pools: sizing to the SLO, guards, the choice between pools. Pure."""
