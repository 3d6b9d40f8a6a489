"""Serving under load, over real HTTP: our data plane beside no batching, window batching and peers."""
