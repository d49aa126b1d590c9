"""Jump hosts, each logged in to once for all hosts behind it; what a log-in is stands in for it here."""

import threading
from contextlib import ExitStack
from typing import Any

import paramiko
import pytest

from runners.ssh.jumps import JumpError, Jumps
from runners.ssh.settings import SshSettings
from tests.lab.waiting import until

OUTER, INNER, TARGET = (SshSettings(name, 22, "ann") for name in ("outer", "inner", "target"))


class Client:
    """A connection, and its own transport."""

    def __init__(self, name: str, refuses: Exception | None) -> None:
        self.name, self.refuses, self.active = name, refuses, True

    def get_transport(self) -> "Client":
        return self

    def is_active(self) -> bool:
        return self.active

    def open_channel(self, kind: str, where: tuple[str, int], source: tuple[str, int], timeout: float) -> str:
        if self.refuses is not None:
            raise self.refuses
        return f"{self.name} to {where[0]}"


class World:
    """Logs in to hops, and keeps what was begun and ended."""

    def __init__(self, trouble: Exception | None = None, refuses: Exception | None = None) -> None:
        self.trouble, self.refuses = trouble, refuses
        self.log: list[str] = []
        self.clients: list[Client] = []
        self.jumps = Jumps(self.reach)
        self.ready = threading.Event()
        self.ready.set()

    def reach(self, settings: SshSettings, through: Any, ends: ExitStack) -> Any:
        self.log.append(f"+{settings.hostname} through {through}")
        ends.callback(self.log.append, f"-{settings.hostname}")
        assert self.ready.wait(10)
        if self.trouble is not None:
            raise self.trouble
        self.clients.append(Client(settings.hostname, self.refuses))
        return self.clients[-1]


def test_no_jump_host_is_no_tunnel() -> None:
    with ExitStack() as ends:
        assert World().jumps.tunnel((), TARGET, ends) is None


def test_chained_jump_hosts_close_innermost_first() -> None:
    world = World()
    with ExitStack() as first:
        with ExitStack() as second:
            for ends in (first, second):
                assert str(world.jumps.tunnel((OUTER, INNER), TARGET, ends)) == "inner to target"
        assert world.log == ["+outer through None", "+inner through outer to inner"]
    assert world.log[2:] == ["-inner", "-outer"]
    with ExitStack() as again:
        world.jumps.tunnel((OUTER,), TARGET, again)
        assert world.log[4:] == ["+outer through None"]


def test_broken_jump_host_is_reconnected() -> None:
    world = World()
    with ExitStack() as first, ExitStack() as second, ExitStack() as third:
        world.jumps.tunnel((OUTER,), TARGET, first)
        world.clients[0].active = False
        world.jumps.tunnel((OUTER,), TARGET, second)
        first.close()
        world.jumps.tunnel((OUTER,), TARGET, third)
        assert world.log == ["+outer through None"] * 2 + ["-outer"]


def test_waiting_hosts_get_the_jump_hosts_error() -> None:
    """It is not tried once for each of them; whoever comes later tries again."""
    world = World(trouble=ConnectionRefusedError())
    world.ready.clear()
    output: list[str] = []

    def ask() -> None:
        with pytest.raises(JumpError) as caught, ExitStack() as ends:
            world.jumps.tunnel((OUTER, INNER), TARGET, ends)
        output.append(f"{caught.value.jump} {type(caught.value.cause).__name__}")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    # Three at the inner one, and that one at the outer.
    until(lambda: sum(jump.users for jump in world.jumps._jumps.values()) == 4, 10, "all to wait")
    world.ready.set()
    for thread in threads:
        thread.join(10)
    assert output == ["outer ConnectionRefusedError"] * 3
    assert world.log == ["+outer through None", "-outer"]
    ask()
    assert len(world.log) == 4


@pytest.mark.parametrize(
    ("refuses", "expected"),
    [
        (paramiko.ChannelException(2, "Connect failed"), "it does not reach target port 22"),
        (paramiko.SSHException("Timeout opening channel."), "it does not reach target port 22 within 10 s"),
        (paramiko.ChannelException(1, "Administratively prohibited"), "Administratively prohibited"),
    ],
)
def test_a_jump_host_that_leads_no_further(refuses: Exception, expected: str) -> None:
    with pytest.raises(JumpError) as caught, ExitStack() as ends:
        World(refuses=refuses).jumps.tunnel((OUTER,), TARGET, ends)
    assert caught.value.jump == "outer"
    assert expected in str(caught.value.cause)
