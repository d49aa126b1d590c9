"""What is said of an SSH session that has ended."""

import paramiko
import pytest

from runners.ssh.connector import SshLine


@pytest.mark.parametrize(
    ("status", "said"),
    [(3, "it ended with exit status 3"), (0, ""), (-1, "")],  # -1: Paramiko's word for none
)
def test_an_exit_status_is_said_where_there_is_one(status: int, said: str) -> None:
    channel = paramiko.Channel(1)
    channel.exit_status = status
    channel.status_event.set()
    assert SshLine([], channel).last_words() == said
