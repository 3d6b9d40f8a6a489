"""Training of the learned models: data sets, networks, evaluation. Never imported at run time."""
