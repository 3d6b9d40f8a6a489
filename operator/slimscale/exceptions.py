"""The errors that cross a module border. Handlers translate them once, at the edge."""

__all__ = ["Conflict", "InvalidSpec", "NotPermitted", "SlimError", "Unavailable"]


class SlimError(Exception):
    """Base of every error raised on purpose. Its message is safe to show to users."""


class InvalidSpec(SlimError):
    """The custom resource asks for something that cannot be: trying again will not help."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {problem}; {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy


class NotPermitted(SlimError):
    """The API server refused with 401 or 403: shown in a condition, retried slowly."""


class Conflict(SlimError):
    """Another writer was first (409), or the object is gone or another one (404, uid differs)."""


class Unavailable(SlimError):
    """A passing fault: a time-out, a refused connection, 429 or 5xx. Retried with backoff."""

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
