"""The custom resources, as pydantic models: the one source of the CRDs and of their reference."""
