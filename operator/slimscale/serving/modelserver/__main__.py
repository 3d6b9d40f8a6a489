"""`python -m slimscale.serving.modelserver`."""

import logging
import sys

import uvloop
from pydantic import ValidationError

from slimscale.serving.modelserver.process import serve
from slimscale.serving.modelserver.settings import ModelServerSettings


def main() -> None:
    try:
        settings = ModelServerSettings()
    except ValidationError as error:
        sys.exit(f"slimscale.serving.modelserver: {error}")
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    try:
        uvloop.run(serve(settings))
    except (OSError, ValueError) as error:
        sys.exit(f"slimscale.serving.modelserver: {settings.config}: {error}")


if __name__ == "__main__":
    main()
