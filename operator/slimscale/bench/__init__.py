"""Every way to choose a thread count, run on the same work and compared."""
