"""Logs: one line for each record, in JSON unless the log goes to a terminal."""

import logging
import sys
import time
from typing import Final

import orjson

#: A repeated warning or error is written again after this long, s.
REPEAT_SECONDS: Final = 60.0
#: The most different messages that are remembered.
_REMEMBERED: Final = 1000

#: Messages of Faust, and what is written instead. None: nothing, because the process logs its end and the reason.
_TRANSLATED: Final = {
    "Thread keepalive is not responding...": "the thread that talks to Kafka had no processor for 3 s: was this "
    "process paused, or is the machine overloaded?",
    "Crashed reason=": None,
    "retries timed out": None,
    "Task timed out!": "partitions have been moving for longer than a session: does a broker not answer, or is a topic "
    "gone?",
    "Please make sure it's hanging before restart.": None,
}
#: Loggers of Faust and aiokafka that write dozens of lines at every rebalance. The worker logs what matters.
_QUIET = ("faust", "mode", "aiokafka", "streams")


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: time, level, command, logger, message, and the traceback if there is one.

    ``command``: the command that writes the log, such as ``router``.
    """

    def __init__(self, command: str) -> None:
        super().__init__()
        self._command = command

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "command": self._command,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # Names of files and variables may hold bytes that are not text, which orjson refuses.
        return orjson.dumps({name: text.encode(errors="replace").decode() for name, text in line.items()}).decode()


def translated(record: logging.LogRecord) -> bool:
    """Return whether to write a record. Replace messages that only a library's authors understand."""
    if record.name.partition(".")[0] in _QUIET:
        said = record.getMessage()
        for theirs, ours in _TRANSLATED.items():
            if theirs in said:
                record.msg, record.args, record.levelno, record.levelname = ours, (), logging.WARNING, "WARNING"
                return ours is not None
    return True


class Repeats(logging.Filter):
    """Lets a repeated warning or error pass once a minute, and counts the others.

    While a broker is away, each part of the Kafka client logs that several times a second.
    """

    def __init__(self) -> None:
        super().__init__()
        #: When each message was last written, s since 1970, and how often it was left out since then.
        self._written: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is to be written."""
        if record.levelno < logging.WARNING:
            return True
        text = record.getMessage()
        message = record.name, text
        written, left_out = self._written.get(message, (record.created - REPEAT_SECONDS, 0))
        if record.created - written < REPEAT_SECONDS:
            self._written[message] = written, left_out + 1
            return False
        if left_out:
            record.msg, record.args = f"{text} (and {left_out} times more since this was last written)", ()
        if len(self._written) >= _REMEMBERED:
            self._written.clear()
        self._written[message] = record.created, 0
        return True


def configure(level: str = "INFO", command: str = "trueup") -> None:
    """Send logs of a command to standard error: readable at a terminal, JSON elsewhere."""
    handler = logging.StreamHandler(sys.stderr)
    if sys.stderr.isatty():
        handler.setFormatter(logging.Formatter(f"%(asctime)s %(levelname)-8s {command}: %(message)s"))
    else:
        handler.setFormatter(JsonFormatter(command))
    handler.addFilter(translated)
    handler.addFilter(Repeats())
    known = level in logging.getLevelNamesMapping()  # an unknown level is reported when the settings are read
    logging.basicConfig(level=level if known else "INFO", handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mode.timers").setLevel(logging.ERROR)  # it logs each slow commit, several a second
