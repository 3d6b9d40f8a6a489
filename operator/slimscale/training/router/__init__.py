"""Trains the learned router in the compiled simulator: gate, residual, PPO, evolution strategy."""
