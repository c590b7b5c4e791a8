"""Diagnostics as JSON lines on stderr: one object per line with time, level, logger, message and,
of a bug, its trace.

The product never prints: what a command shows on stdout is its result (kvorum/cli), all else goes
through here.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Final, TextIO

from procedures.engine import log_context

access: Final = logging.getLogger("kvorum.access")
"""One line per HTTP request, at level debug: method, path, status, ms."""


class JsonLines(logging.Formatter):
    """One JSON object per record; of what a step logs with its procedure, step and attempt.
    `extra={"data": {…}}` adds fields.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= log_context.fields()
        data = getattr(record, "data", None)
        if isinstance(data, dict):
            line |= data
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def request(method: str, path: bytes, status: int, seconds: float) -> None:
    """Log one request. Ask `access.isEnabledFor(DEBUG)` first: the hot path builds no line."""
    data = {
        "method": method,
        "path": path.decode("ascii", "replace"),
        "status": status,
        "ms": round(seconds * 1000, 3),
    }
    access.debug("request", extra={"data": data})


def configure(level: str, stream: TextIO = sys.stderr) -> None:
    """Send everything from `level` on to `stream`; called once by the commands that run a node."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of every malformed request
