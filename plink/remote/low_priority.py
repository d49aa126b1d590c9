"""Standing back: a process that starts beside work in progress takes what cores that leaves it (Linux autogroups).

Runs on the hosts: standard library only.
"""

from __future__ import annotations

import os
import time

VARIABLE = "PLINK_LOW_PRIORITY"  # set: begin so, and go on like everybody else when there is work
_FILE = "/proc/self/autogroup"
_NICE = b"10"  # a tenth of what others get; with 19 a host that is busy with something else never lets it begin
# The kernel lets such changes through ten times a second, of all users together: to stand back is worth a second's
# wait, and not to be held back for good one for a hundred others.
_TIMES, _AGAIN_S = {True: 10, False: 100}, 0.1


def gentle(yes: bool) -> None:
    """Let other sessions go first, or not any more: the whole session of this process, which must be plink's own.

    Where a nice value of the process would be for good (only root may lower it again), that of its session may be taken
    back by anybody (sched(7), "The autogroup feature"). Where there are no autogroups nothing changes.
    """
    try:
        file = os.open(_FILE, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(_TIMES[yes]):
            try:
                os.write(file, _NICE if yes else b"0")
            except BlockingIOError:
                time.sleep(_AGAIN_S)
            else:
                break
    except OSError:
        pass
    finally:
        os.close(file)
