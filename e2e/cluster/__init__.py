"""The test cluster: three kind nodes, from published images or, without a registry, from source."""
