"""``python -m plink``, and the command ``plink``."""

import atexit
import gc
import os
import sys
import threading

import plink

# New objects between two searches for cycles: libraries make 200,000 while they load, and all of them stay.
_BETWEEN_SEARCHES = 50_000


def _forget_the_folder() -> None:
    """``python -m`` looks for modules first where it was typed. What a job's folder calls ``runners`` or ``probes`` is
    not ours, and nobody who measures a network means to run a ``numpy.py`` that lies about."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # the folder was removed: nothing is found there
        return
    if sys.path[0] == here != os.path.dirname(os.path.dirname(os.path.abspath(plink.__file__))):
        del sys.path[0]


def _run() -> int:
    try:
        from plink.cli.entry import run
        from plink.cli.streams import run_guarded
    except KeyboardInterrupt:  # while they load, before signals are handled
        return 130
    return run_guarded(lambda: run(sys.argv[1:]))


def main() -> None:
    """Run the command line and leave with its exit code."""
    _forget_the_folder()
    gc.set_threshold(_BETWEEN_SEARCHES)
    code = _run()
    # CPython notes an interrupt that leaves any exec() of a string, such as those that make dataclasses while modules
    # are loaded, and `python -m` then kills itself by SIGINT in the end, however well that was caught. The next exec()
    # makes it forget.
    exec("")
    # A solver in C++ cannot be stopped. As Python ends, it ends such a thread where that asks for the interpreter's
    # lock; C++ takes that for a defect and aborts the process.
    if any(thread.name == "plink-solver" for thread in threading.enumerate()):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
