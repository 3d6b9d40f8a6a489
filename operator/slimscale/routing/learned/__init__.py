"""The learned router at run time: observation, network and policy, NumPy alone."""
