"""Print the log of the library (loggers below ``plink``) as lines on standard error."""

import logging

from plink.terminal.screen import say, say_error

PANEL = "Verbosity"  # of the options of all commands


class _StderrHandler(logging.Handler):
    """Log handler that prints to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        (say_error if record.levelno >= logging.WARNING else say)(record.getMessage())


def show_log(level: int = logging.INFO) -> None:
    """Print log records of this level and above from now on."""
    logger = logging.getLogger("plink")
    logger.handlers = [handler for handler in logger.handlers if not isinstance(handler, _StderrHandler)] + [
        _StderrHandler()
    ]
    logger.setLevel(level)
    logger.propagate = False
