"""Related systems' policies as machine code, over the simulated data plane of `simulate.routing`."""
