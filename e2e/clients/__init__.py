"""Clients that others made, as they come, in an environment of their own."""
