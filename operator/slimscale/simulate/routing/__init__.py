"""A compiled simulator of the data plane: millions of routing decisions a minute for training and benchmarks.

It models what `slimscale.simulate.serving` runs with the router's and the sidecar's own code, which is
the reference it is validated against.
"""
