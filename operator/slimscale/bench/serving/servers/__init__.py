"""Small servers of the benchmark: the unbatched one, and window batching as KServe's agent does it."""
