"""SlimScale: thread counts for simulation pods, slimmable inference over unlike pools."""

__version__ = "0.1.0"
