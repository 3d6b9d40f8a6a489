"""`python -m slimscale.serving.sidecar`."""

import logging
import sys

import uvloop

from slimscale.serving.sidecar.process import serve
from slimscale.serving.sidecar.settings import SidecarSettings

if __name__ == "__main__":
    settings = SidecarSettings()
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    try:
        uvloop.run(serve(settings))
    except (OSError, ValueError) as error:
        sys.exit(f"slimscale.serving.sidecar: {settings.config}: {error}")
