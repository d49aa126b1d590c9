"""Low CPU priority for a whole session, which can be lifted again (Linux autogroups).

Runs on the hosts: standard library only. A process that starts beside a running job takes only the cores that the job
leaves free.
"""

from __future__ import annotations

import os
import time

VARIABLE = "PLINK_LOW_PRIORITY"  # if set, a program starts at low priority until it has work
_FILE = "/proc/self/autogroup"
_NICE = b"10"  # a tenth of what others get; with 19 a host that is busy with something else never lets it begin
# The kernel lets such changes through ten times a second, of all users together. Lowering is worth a wait of a second;
# raising must get through even where a hundred others try.
_TRIES, _RETRY_S = {True: 10, False: 100}, 0.1


def set_low_priority(enabled: bool) -> None:
    """Lower the CPU priority of this process's session, which must be plink's own, or restore it.

    Only root may take back a nice value of a process, but anybody that of a session (sched(7), "The autogroup
    feature"). Where there are no autogroups nothing changes.
    """
    try:
        file = os.open(_FILE, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _ in range(_TRIES[enabled]):
            try:
                os.write(file, _NICE if enabled else b"0")
            except BlockingIOError:
                time.sleep(_RETRY_S)
            else:
                break
    except OSError:
        pass
    finally:
        os.close(file)
