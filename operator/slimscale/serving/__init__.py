"""The data plane: Open Inference Protocol over HTTP, router, batching sidecar, model server."""
