"""What can go wrong with a measurement on this machine, in words that say what to do."""

from slimscale.exceptions import SlimError

__all__ = ["BuildError", "MachineBusy", "PoolError", "QuotaError"]


class BuildError(SlimError):
    """There is no C compiler, or it refused the program."""


class PoolError(SlimError):
    """The native pool ended, refused a load or did not answer in time."""


class QuotaError(SlimError):
    """No CPU control group can be made here."""


class MachineBusy(SlimError):
    """Somebody else measures, or the machine is too loaded to measure on."""
