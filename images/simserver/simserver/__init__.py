"""A simulation in the loop of reinforcement-learning inference, whose tasks change size.

Phases: light (lock-step environments), heavy (long rollouts), blocking (tasks that wait for an
external engine). It follows its thread count through `slimscale.inpod` (docs/contract.md).
"""
