"""One JSON object a line on standard error. Fields come from `extra`; nothing else is added.

Loggers of libraries stay at WARNING: at DEBUG they print headers, bodies and environments of what
they send, and with them other people's secrets.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

__all__ = ["JsonFormatter", "set_up_logging"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_LIMIT = 2000


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:_LIMIT],
        }
        for name, value in vars(record).items():
            if name not in _STANDARD and not name.startswith("_"):
                line.setdefault(name, value)
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)[-2 * _LIMIT :]
        return json.dumps(line, default=str, ensure_ascii=False)


def set_up_logging(level: str, stream: TextIO | None = None) -> None:
    """Replace whatever handlers are there. level is for `slimscale`; libraries get WARNING."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("slimscale").setLevel(level)
    # kopf reports "credentials retriever started" and the like at INFO; its DEBUG shows patches.
    logging.getLogger("kopf").setLevel(logging.WARNING)
