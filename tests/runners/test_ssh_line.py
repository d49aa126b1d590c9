"""How an SSH session ends, and what is said of it."""

import contextlib
from typing import Any

import paramiko
import pytest

from runners.ssh.connector import SshLine, _close


@pytest.mark.parametrize(
    ("status", "said"),
    [(3, "it ended with exit status 3"), (0, ""), (-1, "")],  # -1: Paramiko's word for none
)
def test_an_exit_status_is_said_where_there_is_one(status: int, said: str) -> None:
    channel = paramiko.Channel(1)
    channel.exit_status = status
    channel.status_event.set()
    assert SshLine(contextlib.ExitStack(), channel).last_words() == said


class Closing:
    """A connection that says something while it is closed."""

    def __init__(self, said: Exception) -> None:
        self.said, self.closed = said, 0

    def close(self) -> None:
        self.closed += 1
        raise self.said


@pytest.mark.parametrize("said", [OSError("gone"), EOFError(), paramiko.SSHException("Channel closed.")])
def test_every_connection_is_closed_once_whatever_it_says(said: Exception) -> None:
    """Paramiko says EOFError where the jump host's connection, which the target's goes through, ends meanwhile."""
    clients: list[Any] = [Closing(said), Closing(said)]
    ends = contextlib.ExitStack()
    for client in clients:
        ends.callback(_close, client)
    line = SshLine(ends, paramiko.Channel(1))
    line.close()
    line.close()
    assert [client.closed for client in clients] == [1, 1]


@pytest.mark.parametrize("said", [EOFError(), paramiko.SSHException("Key-exchange timed out")])
def test_a_connection_that_breaks_while_it_is_written_to_is_a_broken_pipe(
    said: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = paramiko.Channel(1)

    def breaks(data: bytes) -> None:
        raise said

    monkeypatch.setattr(channel, "sendall", breaks)
    with pytest.raises(BrokenPipeError):
        SshLine(contextlib.ExitStack(), channel).write(b"more")
