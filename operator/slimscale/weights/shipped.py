"""The learned predictor that ships; the operator uses it where its settings ask for it."""

from functools import lru_cache

from slimscale.threads.operator_network import OperatorPredictor, load_operator
from slimscale.weights import read_weights

__all__ = ["THREADS_OPERATOR", "shipped_predictor"]

THREADS_OPERATOR = "threads-operator"


@lru_cache(maxsize=1)
def shipped_predictor() -> OperatorPredictor:
    """The operator network, read once; it answers with the analytic model where it must."""
    return load_operator(*(read_weights(THREADS_OPERATOR) or (None, None)))
