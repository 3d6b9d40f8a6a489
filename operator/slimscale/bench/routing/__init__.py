"""Routing policies on the compiled data plane: every rule, the learned policy, the bounds."""
