"""No test ever touches a cluster that is not a throw-away kind cluster."""


class NotATestCluster(Exception):
    """The context is not one of kind's: somebody's real cluster may be behind it."""


def require_kind_context(context: str) -> str:
    """The same context, when its name begins with `kind-` and has a name after it.

    Raises:
        NotATestCluster: otherwise, also for an empty name (the current context would be used).
    """
    if not context.startswith("kind-") or context == "kind-":
        raise NotATestCluster(
            f"context {context!r} is refused: these tests only touch kind clusters,"
            " whose contexts are called kind-NAME (make e2e creates one)"
        )
    return context
