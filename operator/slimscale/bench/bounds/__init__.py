"""Bounds on routing, and what the ideas of related systems come to: `slimscale bench bounds`."""
