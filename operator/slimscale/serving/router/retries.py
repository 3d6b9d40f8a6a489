"""How many second tries there may be: a share of the requests, so that retries can't feed an overload."""

__all__ = ["RetryBudget"]


class RetryBudget:
    """`take` before each retry. One request in five earns one, `most` are saved up.

    A dying pod takes all that it has in flight with it: the savings are for that.
    """

    def __init__(self, *, most: float = 256.0, earned_by_request: float = 0.2) -> None:
        self._most = most
        self._earned = earned_by_request
        self._left = most

    def earn(self) -> None:
        """A request came."""
        self._left = min(self._most, self._left + self._earned)

    def take(self) -> bool:
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
