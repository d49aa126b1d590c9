"""What the kernel counted of real connections between processes: how much went to whom, and how fast."""

import os
import socket
import time
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from plink.runtime.allreduce.connections import PeerConnections, tcp_sockets
from plink.runtime.allreduce.mesh import FullMesh
from plink.runtime.allreduce.transport import GlooTransport
from tests.runtime.ranks import results_of, run_ranks

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux")


def send_and_count() -> tuple[bool, bool, Any, float]:
    """Rank 0 sends rank 1 64 MB; returns what the kernel counted of this rank's connections."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    before = tcp_sockets()
    store = dist.distributed_c10d._get_default_store()
    transport = GlooTransport(dist.PrefixStore("x/", store), FullMesh(rank, range(size), 2), timedelta(seconds=60))
    mine = PeerConnections({fd: inode for fd, inode in tcp_sockets().items() if before.get(fd) != inode}, size)
    numbers = torch.from_numpy(mine.identities(8))
    everyone = [torch.empty_like(numbers) for _ in range(size)]
    dist.all_gather(everyone, numbers)
    identities = mine.match_peers(torch.stack(everyone).numpy(), rank)
    lost = PeerConnections({}, size).match_peers(np.zeros((size, 8), dtype=np.int64), rank)
    for channel in range(2):
        data = torch.zeros(8_000_000)
        if rank == 0:
            transport.wait(transport.send(data, 1, channel, 1), 1, channel)
        elif rank == 1:
            transport.wait(transport.receive(data, 0, channel, 1), 0, channel)
    dist.barrier()
    time.sleep(0.3)  # until the last of it is acknowledged
    first, second = mine.collect(), mine.collect()
    dist.barrier()
    dist.destroy_process_group()
    return identities, lost, np.nan_to_num(first), second[:, :2].sum()


@pytest.mark.extended
def test_what_went_to_whom() -> None:
    """64 MB from rank 0 to rank 1 over two connections, and next to nothing else."""
    traffic = results_of(run_ranks(send_and_count, 3))
    assert [identities for identities, *_ in traffic] == [True] * 3
    assert [lost for _, lost, *_ in traffic] == [False] * 3
    sent, busy, rtt = traffic[0][2].T
    assert 64e6 <= sent[1] < 64.2e6
    assert sent[2] < 10_000
    assert 0 < busy[1] < 30
    assert (rtt[1:] > 0).all()
    assert (rtt < 1).all()
    assert traffic[1][2][:, 0].max() < 10_000
    assert traffic[0][3] < 10_000  # since the last time


def test_a_connection_that_ended_is_passed_over() -> None:
    """Its descriptor may be somebody else's file by then."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        mine = {near.fileno(): os.fstat(near.fileno()).st_ino}
        connection, other = PeerConnections(mine, 2), PeerConnections({far.fileno(): os.fstat(far.fileno()).st_ino}, 2)
        assert connection.identities(3)[0] == other.identities(3)[0] != 0
        assert connection.identities(3)[1:].tolist() == [0, 0]
        assert connection.match_peers(np.stack([connection.identities(1), other.identities(1)]), 0)
        near.sendall(b"x" * 1000)
        far.recv(1000)
        assert connection.collect()[1, 0] == 1000
        fd = near.fileno()
        near.close()
        with open(os.devnull) as file:
            assert file.fileno() == fd
            assert np.isnan(connection.collect()[1, 2])
            assert connection.identities(1).tolist() == [0]
        far.close()


def test_looking_changes_nothing() -> None:
    """No descriptor stays open, and a socket that waits goes on waiting, whatever new ones of Python's would do."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        socket.setdefaulttimeout(1.0)
        try:
            open_before = set(os.listdir("/proc/self/fd"))
            mine = tcp_sockets()
            connections = PeerConnections(mine, 2)
            connections.identities(4)
            connections.match_peers(np.zeros((2, 4), dtype=np.int64), 0)
            connections.collect()
            assert set(os.listdir("/proc/self/fd")) == open_before
        finally:
            socket.setdefaulttimeout(None)
        assert {near.fileno(), far.fileno()} <= set(mine)
        assert os.get_blocking(near.fileno())
        assert os.get_blocking(far.fileno())
        far.close()


def test_what_is_no_connection_is_none_of_ours() -> None:
    before = tcp_sockets()
    with socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM):
        assert tcp_sockets() == before


def test_a_receiver_that_comes_late_is_no_slow_link() -> None:
    """What waits for room at the other end is not under way."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
        with socket.create_connection(listening.getsockname()) as sends, listening.accept()[0] as late:
            fd = sends.fileno()
            mine = PeerConnections({fd: os.fstat(fd).st_ino}, 2)
            mine._peer_of[fd] = 1
            mine.collect()
            sends.setblocking(False)
            sent = sends.send(bytes(1 << 20))
            time.sleep(1.0)
            waited = mine.collect()[1]
            sends.settimeout(5)
            for _ in range(sent // 1000):
                late.recv(1000, socket.MSG_WAITALL)
    assert 0 < waited[0] < sent
    assert waited[1] < 0.5  # it is 1.0 with the time in which there was no room
