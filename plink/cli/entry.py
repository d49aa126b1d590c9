"""Run a command line: print errors in one line, stop on the first Ctrl-C, exit at once on the second."""

import contextlib
import os
import signal
import sys
import traceback
from typing import Any

from plink.cli import limits, verbosity
from plink.cli.config import line_of
from plink.errors import PlinkError, printable
from plink.records import workspace
from plink.records.scratch import remove_abandoned
from plink.terminal.compilation_notice import compilation_notice
from plink.terminal.interrupts import install

_HELP = {"-h", "--help"}
# Those that read or write `./.plink/`.
_WORKSPACE_COMMANDS = {
    "probe", "doctor", "diff", "embed", "cluster", "reorder", "cost", "advise", "plan", "schedule", "report",
    "check", "launch", "submit", "compare", "manifests", "runs", "elastic",
}  # fmt: skip

# Those that run a job.
_JOB_COMMANDS = (["launch"], ["compare"], ["runs", "rerun"], ["elastic", "run"])


def run(words: list[str]) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 usage, 3 partly done, 4 no answer, 128 + N after
    signal N (130 for Ctrl-C)."""
    from plink.cli.app import command

    stop = install()
    name, after = _command(words)
    verbosity.begin(helping=bool(_HELP & set(after[:2])))
    try:
        if name in _WORKSPACE_COMMANDS and not _HELP & set(after[:1]):
            limits.check_folder()
            limits.check_memory()
            workspace.check_trusted()
            remove_abandoned()
        completing = "_PLINK_COMPLETE" in os.environ  # the line to complete is not among the words
        line = command(None if completing else name)
        with compilation_notice(is_json="--json" in after):
            code = line.main(args=words, prog_name="plink", standalone_mode=False)
        sys.stdout.flush()
        if stop.number:  # Typer makes 130 of every interrupt, whichever signal it was
            return stop.exit_code
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return stop.exit_code
    except (BrokenPipeError, SystemExit) as error:
        # Typer leaves by SystemExit when a pipe breaks.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        # The reader (head, less) has gone: nothing is wrong, and nothing more can be said on this pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        # A job that lost its reader was ended, and is not done.
        below = [word for word in after if not word.startswith("-")][:1]
        return 128 + signal.SIGPIPE if [name] in _JOB_COMMANDS or [name, *below] in _JOB_COMMANDS else 0
    except PlinkError as error:
        # After a Ctrl-C it is that which ended the command, and this is what came of it.
        return _print_error(error, str(error), stop.exit_code if stop.number else error.exit_code)
    except Exception as error:
        # Typer's usage errors: their class moved between its releases, what they offer did not.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            command_path = getattr(getattr(error, "ctx", None), "command_path", "plink")
            message = str(error.format_message())
            if not message:  # a bare `plink` or `plink lab`: its help has been shown
                return int(error.exit_code)
            from plink.cli.usage_errors import in_our_words

            message = in_our_words(message, words)
            text = f"{_file_location(error, command_path, words)}{message} (see `{command_path} --help`)"
            return _print_error(error, text, int(error.exit_code))
        if type(error).__name__ == "Abort":  # Typer makes one of every EOFError too
            if stop.number or not isinstance(error.__cause__, EOFError):
                return stop.exit_code
            error = error.__cause__
        explanation = limits.explain(error)
        if explanation is None and (stop.number or _follows_interrupt(error)):
            # What was interrupted failed of it, such as a compilation: no defect, and the signal has been reported.
            if verbosity.debugging():
                traceback.print_exception(error)
            return stop.exit_code
        return _print_error(error, explanation or _defect(error), stop.exit_code if stop.number else 1)


def _command(words: list[str]) -> tuple[str, list[str]]:
    """Return the command's name, which follows the global options, and the words after it."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        rest = rest[2 if rest[0] == "--config" else 1 :]
    return (rest[0], rest[1:]) if rest else ("", [])


def _file_location(error: Any, command: str, words: list[str]) -> str:
    """Return file and line of a refused value, unless it was typed."""
    parameter = getattr(error, "param", None)
    names = {word.partition("=")[0] for word in words}
    if parameter is None or names & {*parameter.opts, *parameter.secondary_opts}:
        return ""
    line = line_of(command, parameter.name)
    return "" if line is None else f"{line}: "


def _follows_interrupt(error: BaseException | None) -> bool:
    """Return whether a KeyboardInterrupt led to this error."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _defect(error: Exception) -> str:
    return f"{type(error).__name__}: {error} (a defect in plink; `plink --debug ...` shows where)"


def _print_error(error: Exception, message: str, code: int) -> int:
    if verbosity.debugging():
        traceback.print_exception(error)
    with contextlib.suppress(BrokenPipeError):
        print(f"plink: error: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code
