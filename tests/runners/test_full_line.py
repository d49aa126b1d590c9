"""An agent whose line is full and never read: it waits for its lease and no longer."""

import os
import threading
import time

import pytest

from plink.remote.lifeline import ControllerGone, Lifeline


def test_a_line_that_nobody_reads_counts_as_cut_after_the_lease() -> None:
    """A blocking write would keep the agent, and its ranks, for as long as TCP tries."""
    read, write = os.pipe()
    line = Lifeline(0.3, read_fd=read, write_fd=write)
    began = time.monotonic()
    with pytest.raises(ControllerGone):
        line.send(text="x" * (1 << 20))
    assert 0.25 < time.monotonic() - began < 5
    os.close(read)
    os.close(write)


def test_a_slow_reader_gets_all_of_it() -> None:
    """A full line that is read again is no reason to give up."""
    read, write = os.pipe()
    got = bytearray()

    def drain() -> None:
        while data := os.read(read, 1 << 16):
            got.extend(data)
            time.sleep(0.02)

    reader = threading.Thread(target=drain)
    reader.start()
    Lifeline(2.0, read_fd=read, write_fd=write).send(text="x" * (1 << 20))
    os.close(write)
    reader.join(timeout=10)
    os.close(read)
    assert bytes(got) == b'{"text": "' + b"x" * (1 << 20) + b'"}\n'
