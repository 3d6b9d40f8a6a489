"""`make demo`: a cluster, the operator, a simulation that gets faster in the same pods."""
