"""Logs: one line a record, JSON when nobody sits at the terminal."""

import logging
import sys
import time

import orjson

#: Faust and aiokafka log dozens of lines at every rebalance. The worker logs what matters.
_QUIET = ("faust", "mode", "aiokafka", "streams")


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # Names of files and variables may hold bytes that are no text, which orjson refuses.
        return orjson.dumps({name: text.encode(errors="replace").decode() for name, text in line.items()}).decode()


def configure(level: str = "INFO") -> None:
    """Send logs to standard error: readable at a terminal, JSON elsewhere."""
    handler = logging.StreamHandler(sys.stderr)
    if sys.stderr.isatty():
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-8s %(name)s  %(message)s"))
    else:
        handler.setFormatter(JsonFormatter())
    known = level in logging.getLevelNamesMapping()  # an unknown level is reported when the settings are read
    logging.basicConfig(level=level if known else "INFO", handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
