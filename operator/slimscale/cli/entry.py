"""The console script: says what to install where the command line's own packages are missing."""

import sys

__all__ = ["run"]


def run() -> None:
    """Run `slimscale`; without the extra `cli`, one line that names the remedy, exit status 1."""
    try:
        from slimscale.cli.main import run as run_main
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slimscale"):
            raise
        sys.stderr.write(
            f"slimscale: {error.name} is missing; from a checkout: pip install '.[cli,operator]'\n"
        )
        sys.exit(1)
    run_main()
