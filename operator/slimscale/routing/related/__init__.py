"""Ideas of related systems, each as a small pure piece: placement, timers, rules, two time scales, cuts.

What each one is after is in `docs/adr/0024-ideas-of-related-systems.md`, what it gains in
`docs/results/routing-bounds.md`.
"""
