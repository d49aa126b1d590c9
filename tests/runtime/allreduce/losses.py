"""Ranks that go on all-reducing until one of them is lost, and what the others are told."""

import os
import re
import signal
import sys
import time
from collections.abc import Collection, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

from tests.runtime.ranks import Ended


def reduce_until_a_loss(how: str, lost: int, timeout_s: float, members: Sequence[int] | None = None) -> None:
    """All-reduce until a rank is lost at step 3, in one rank; prints what it is told, and ends with exit code 5.

    ``how``: the lost rank dies, hangs, freezes, or differs in what it asks for. ``members``: of a group that does so,
    None for that of all; the other ranks wait.
    """
    timeout = timedelta(seconds=timeout_s)
    dist.init_process_group("gloo", timeout=timeout)
    rank = dist.get_rank()
    group = dist.new_group(list(members), timeout=timeout) if members else None  # torch does not take that of all
    if members and rank not in members:
        time.sleep(600)
    for step in range(100):
        began, size = time.monotonic(), 100_000
        if step == 3 and rank == lost:
            if how == "dies":
                os._exit(9)
            if how == "hangs":
                time.sleep(600)
            if how == "freezes":
                os.kill(os.getpid(), signal.SIGSTOP)
            size = 99_999
        try:
            if step % 2:
                dist.all_reduce(torch.ones(size), group=group)
            else:
                dist.all_reduce(torch.ones(size), async_op=True, group=group).wait()  # type: ignore[union-attr]
        except RuntimeError as error:
            print(f"step {step}: after {time.monotonic() - began:.0f} s: {str(error).splitlines()[0]}", flush=True)
            try:
                dist.all_reduce(torch.ones(1), group=group)
            except RuntimeError:
                print("again", flush=True)
            if members:  # others still wait for the connections of this one
                os._exit(5)
            sys.exit(5)


def check_losses(
    ended: Sequence[Ended], survivors: Collection[int], reasons: Sequence[str], after_s: float = 0
) -> None:
    """Check that these ranks were told why, so many seconds after they asked for the sum, and get no sum any more."""
    for rank in survivors:
        assert ended[rank].code == 5, ended[rank]
        first, again = ended[rank].out.splitlines()
        match = re.fullmatch(r"step 3: after (\d+) s: (.*)", first)
        assert match, first
        assert after_s <= int(match[1]) < 60
        assert all(reason in match[2] for reason in reasons), match[2]
        assert again == "again"
