"""An agent whose line is full: it waits for as long as its controller renews the lease, and no longer."""

import os
import threading
import time
from collections.abc import Iterator

import pytest

from plink.remote.lifeline import ControllerGone, Lifeline


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    """The two ends of what the agent hears, and of what it says."""
    ends = (*os.pipe(), *os.pipe())
    yield ends
    for end in ends:
        os.close(end)


def test_a_line_that_nobody_reads_counts_as_cut_after_the_lease(pipes: tuple[int, int, int, int]) -> None:
    """A blocking write would keep the agent, and its ranks, for as long as TCP tries."""
    line = Lifeline(0.3, read_fd=pipes[0], write_fd=pipes[3])
    began = time.monotonic()
    with pytest.raises(ControllerGone):
        line.send(text="x" * (1 << 20))
    assert 0.25 < time.monotonic() - began < 5


def test_a_controller_that_reads_nothing_and_renews_the_lease_is_waited_for(pipes: tuple[int, int, int, int]) -> None:
    """Its terminal is held up; what it said meanwhile is obeyed later. When it closes the line, that is the end."""
    line = Lifeline(0.5, read_fd=pipes[0], write_fd=pipes[3])
    began = time.monotonic()

    def renew() -> None:
        os.write(pipes[1], b'{"do": "end"}\n')
        while time.monotonic() - began < 1.5:
            os.write(pipes[1], b'{"do": "alive"}\n')
            time.sleep(0.1)

    controller = threading.Thread(target=renew)
    controller.start()
    with pytest.raises(ControllerGone):
        line.send(text="x" * (1 << 20))
    assert time.monotonic() - began > 1.5
    controller.join()
    assert line.receive(0.0) == {"do": "end"}


def test_a_slow_reader_gets_all_of_it(pipes: tuple[int, int, int, int]) -> None:
    """A full line that is read again is no reason to give up."""
    read, write = os.pipe()
    got = bytearray()

    def drain() -> None:
        while data := os.read(read, 1 << 16):
            got.extend(data)
            time.sleep(0.02)

    reader = threading.Thread(target=drain)
    reader.start()
    Lifeline(2.0, read_fd=pipes[0], write_fd=write).send(text="x" * (1 << 20))
    os.close(write)
    reader.join(timeout=10)
    os.close(read)
    assert bytes(got) == b'{"text": "' + b"x" * (1 << 20) + b'"}\n'
