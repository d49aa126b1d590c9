"""Short messages over sockets of our own: ranks as threads of this process, over loopback."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

from plink.runtime.allreduce import eager, mesh
from plink.runtime.allreduce.connections import own_addresses, tcp_sockets
from plink.runtime.allreduce.eager import EagerTransport, connect_eager
from plink.runtime.allreduce.mesh import CannotConnect, FullMesh, connect_mesh
from plink.runtime.allreduce.watchdog import PeerLost
from tests.runtime.allreduce.thread_ranks import everywhere

HERE = "127.0.0.1"


def join(store: Any, rank: int, size: int, channels: int = 1, timeout_s: float = 20.0) -> EagerTransport:
    """One rank."""
    mesh = FullMesh(rank, range(size), channels)
    return EagerTransport(connect_mesh(store, mesh, [HERE], timeout_s), mesh, timedelta(seconds=timeout_s))


@contextmanager
def ranks(size: int, channels: int = 1, timeout_s: float = 20.0) -> Iterator[list[EagerTransport]]:
    """All of them, connected."""
    store = dist.HashStore()
    made = everywhere(size, lambda rank: join(store, rank, size, channels, timeout_s))
    try:
        yield made
    finally:
        for transport in made:
            transport.release()


def test_long_messages_both_ways_at_once() -> None:
    """Many times what kernels hold, and nobody waits for the other to read first; each lane and way in its order."""
    size, count = 6 << 20, 3

    def whole(transport: EagerTransport, rank: int, channel: int) -> None:
        other = 1 - rank
        came = [torch.zeros(size, dtype=torch.uint8) for _ in range(count)]
        inputs = [torch.full((size,), 10 * channel + rank + 2 * k, dtype=torch.uint8) for k in range(count)]
        sent = [transport.send(inputs[k], other, channel, k) for k in range(count)]
        begun = [transport.receive(came[k], other, channel, k) for k in range(count)]
        for pending in [*begun, *sent]:
            transport.wait(pending, other, channel)
        assert [torch.unique(numbers).tolist() for numbers in came] == [
            [10 * channel + other + 2 * k] for k in range(3)
        ]

    with ranks(2, channels=2) as made:
        everywhere(4, lambda k: whole(made[k // 2], k // 2, k % 2))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_one_of_each_size(kind: torch.dtype) -> None:
    """From a number to some kilobytes, between all pairs."""
    sizes = [1, 2, 3, 1000, 5000]

    def work(transport: EagerTransport, rank: int) -> None:
        for number, n in enumerate(sizes):
            out = torch.full((n,), rank + 1).to(kind)
            came = {peer: torch.zeros(n, dtype=kind) for peer in range(3) if peer != rank}
            begun = [(transport.receive(where, peer, 0, number), peer) for peer, where in came.items()]
            sent = [(transport.send(out, peer, 0, number), peer) for peer in came]
            for pending, peer in [*begun, *sent]:
                transport.wait(pending, peer, 0)
            assert all((where == peer + 1).all() for peer, where in came.items())

    with ranks(3) as made:
        everywhere(3, lambda rank: work(made[rank], rank))


def test_clients_without_the_secret_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever says nothing, too little, the wrong word or another's name, while the ranks meet: they meet all the
    same, and no client is taken for one of them."""
    monkeypatch.setattr(mesh, "_GREETING_TIMEOUT_S", 0.2)
    store, made = dist.HashStore(), {}
    first = threading.Thread(target=lambda: made.update({0: join(store, 0, 2)}))
    first.start()
    entry = store.get("at0")
    token, (host, port) = entry[:16], entry[16:].decode().split()
    words = [b"", b"GET / HTTP", mesh._GREETING.pack(b"x" * 16, 1, 0), mesh._GREETING.pack(token, 1, 3),
             mesh._GREETING.pack(token, 7, 0)]  # fmt: skip
    clients = []
    for word in words:
        client = socket.create_connection((host, int(port)), timeout=5)
        client.sendall(word)
        clients.append(client)
    made[1] = join(store, 1, 2)
    first.join(10)
    sent, came = torch.tensor([5.0]), torch.zeros(1)
    made[0].send(sent, 1, 0, 9)
    made[1].wait(made[1].receive(came, 0, 0, 9), 0, 0)
    assert came.item() == 5.0
    for client in clients:
        with client:
            assert client.recv(1) == b""
    for transport in made.values():
        transport.release()


def test_silent_clients_do_not_block_rendezvous() -> None:
    """They are heard beside the others, not before them."""
    store, made = dist.HashStore(), list[EagerTransport]()
    first = threading.Thread(target=lambda: made.append(join(store, 0, 2)))
    first.start()
    entry = store.get("at0")
    host, port = entry[16:].decode().split()
    silent = [socket.create_connection((host, int(port)), timeout=5) for _ in range(20)]
    began = time.monotonic()
    made.append(join(store, 1, 2))
    first.join(10)
    assert time.monotonic() - began < mesh._GREETING_TIMEOUT_S
    for transport in silent:
        transport.close()
    for transport in made:
        transport.release()


def test_nobody_is_called_twice() -> None:
    """A rank that is there already, though it knows the word: the second is a client."""
    store = dist.HashStore()
    everyone: list[Any] = []
    first = threading.Thread(target=lambda: everyone.append(join(store, 0, 3, timeout_s=5)))
    first.start()
    entry = store.get("at0")
    token, (host, port) = entry[:16], entry[16:].decode().split()
    calls = []
    for rank in (1, 1, 2):
        transport = socket.create_connection((host, int(port)), timeout=5)
        transport.sendall(mesh._GREETING.pack(token, rank, 0))
        calls.append(transport)
    first.join(10)
    assert calls[1].recv(1) == b""
    everyone[0].send(torch.ones(1), 1, 0, 4)
    assert calls[0].recv(8) == eager._MESSAGE.pack(4, 4)
    everyone[0].release()
    for transport in calls:
        transport.close()


@pytest.mark.parametrize("who", ["closes", "is killed", "stops"])
def test_a_lost_rank_is_named(who: str) -> None:
    """At once by whoever waits for it, with the name that the job has for it; by nobody else."""
    store, errors = dist.HashStore(), []
    meshes = [FullMesh(rank, [4, 7], 1) for rank in range(2)]
    made = everywhere(
        2, lambda rank: EagerTransport(connect_mesh(store, meshes[rank], [HERE], 9), meshes[rank], timedelta(seconds=1))
    )
    if who == "closes":
        made[1].release()
    elif who == "is killed":  # its kernel says so
        made[1]._connections[0][0].socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        made[1].release()
    began = time.monotonic()

    def until_it_fails(begin: Callable[..., Any], often: int) -> None:
        for _ in range(often):
            made[0].wait(begin(torch.zeros(1 << 16), 1, 0, 1), 1, 0)

    for begin, often in ((made[0].receive, 1), (made[0].send, 1000)):
        with pytest.raises(PeerLost, match="lost connection to rank 7: ") as error:
            until_it_fails(begin, often)
        errors.append(str(error.value))
    assert (time.monotonic() - began > 0.9) == (who == "stops")
    assert [("within 1 s" in reason) for reason in errors] == [who == "stops"] * 2
    for transport in made:
        transport.release()


def test_closing_wakes_whoever_waits() -> None:
    """From another thread; and nothing can be begun after."""
    with ranks(2) as made:
        entry: list[str] = []

        def waits() -> None:
            try:
                made[0].wait(made[0].receive(torch.zeros(1), 1, 0, 1), 1, 0)
            except PeerLost as error:
                entry.append(str(error))

        thread = threading.Thread(target=waits)
        thread.start()
        time.sleep(0.2)
        made[0].close()
        thread.join(5)
        assert entry == ["lost connection to rank 1: the connections of this group were closed"]
        for begin in (made[0].send, made[0].receive):
            with pytest.raises(PeerLost, match="were closed"):
                begin(torch.zeros(1), 1, 0, 1)


def test_unexpected_message_is_never_delivered() -> None:
    """Another meaning, or another length: who waits for it goes on waiting, until somebody finds out why."""
    with ranks(2, timeout_s=1.0) as made:
        made[1].send(torch.ones(3), 0, 0, 5)
        with pytest.raises(PeerLost, match="within 1 s"):
            made[0].wait(made[0].receive(torch.zeros(3), 1, 0, 6), 1, 0)
        made[0].send(torch.ones(2), 1, 0, 5)
        with pytest.raises(PeerLost, match="within 1 s"):
            made[1].wait(made[1].receive(torch.zeros(3), 0, 0, 5), 0, 0)


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        ([], "this host's address is unknown"),
        (["192.0.2.1"], "cannot listen at 192.0.2.1"),
        ([HERE, "192.0.2.1"], "cannot listen at 192.0.2.1"),
    ],
)
def test_all_go_without_where_one_cannot(
    addresses: list[str], reason: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No address, or one that is none of the host's: None on all, those who could not say why, and no file stays."""
    monkeypatch.setattr(mesh, "_CONNECT_TIMEOUT_S", 1.0)
    before = len(os.listdir("/proc/self/fd"))
    store, barrier, entry = dist.HashStore(), threading.Barrier(3), [True] * 3

    def work(rank: int) -> EagerTransport | None:
        def all_can(mine: bool) -> bool:
            entry[rank] = mine
            barrier.wait(10)
            return all(entry)

        where = addresses if rank == 1 else [HERE]
        return connect_eager(store, FullMesh(rank, [5, 6, 7], 2), timedelta(seconds=9), where, all_can)

    assert everywhere(3, work) == [None] * 3
    printed = capfd.readouterr().err
    assert f"plink: short messages use gloo: {reason}" in printed
    assert "plink: short messages use gloo: cannot connect to rank 6" in printed
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_rank_that_does_not_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have no way here."""
    monkeypatch.setattr(mesh, "_CONNECT_TIMEOUT_S", 0.3)
    with pytest.raises(CannotConnect, match="rank 1 has not connected to rank 0"):
        join(dist.HashStore(), 0, 2)


def test_the_address_is_that_of_most_connections() -> None:
    """Of those that were asked for; of none, none."""
    assert own_addresses([]) == []
    with socket.create_server((HERE, 0)) as listening, socket.create_connection(listening.getsockname()) as call:
        assert own_addresses([call.fileno(), 0]) == [HERE]
        assert call.fileno() in tcp_sockets()


def test_channels_use_the_rails_in_turns() -> None:
    """Channel k connects address k of both hosts, modulo two: so the kernel's routes decide the interface."""
    rails, store, channels = ["127.0.0.1", "127.0.0.2"], dist.HashStore(), 5

    def work(rank: int) -> dict[tuple[int, int], socket.socket]:
        return connect_mesh(store, FullMesh(rank, range(3), channels), rails, 20)

    sockets = everywhere(3, work)
    for own in sockets:
        assert sorted(channel for _, channel in own) == sorted([*range(channels)] * 2)
        for (_, channel), sock in own.items():
            assert sock.getsockname()[0] == sock.getpeername()[0] == rails[channel % 2]
            sock.close()
