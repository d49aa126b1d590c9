"""torch.distributed's point-to-point messages over several connections a pair, one for each lane."""

import os
import resource
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from plink.runtime.aggengine.failures import PeerLost
from plink.runtime.aggengine.meeting import FullMesh

_OTHER_FILES = 256  # that the program may open besides
_AT_ONCE = timedelta(milliseconds=1)
CLOSED = "the connections of this group were closed"


class Pending(Protocol):
    """A message under way: :class:`torch.distributed.Work`."""

    def wait(self) -> object:
        """Until it has left or arrived; raises when it never will."""


class Transport(Protocol):
    """Messages between the ranks of a group. Messages of one lane from one rank to another arrive in their order."""

    def send(self, tensor: torch.Tensor, peer: int, lane: int, signature: int) -> Pending:
        """Begin to send a contiguous tensor, which must not change until that is done."""

    def receive(self, tensor: torch.Tensor, peer: int, lane: int, signature: int) -> Pending:
        """Begin to receive into a contiguous tensor what ``peer`` sends with that signature."""

    def wait(self, pending: Pending, peer: int, lane: int) -> None:
        """Until a message to or from ``peer`` is through.

        :raises PeerLost: when it never will be.
        """

    def close(self) -> None:
        """End all that is under way: whoever waits here gets an error, and so do the peers, which lose connections."""


# Gloo's tags are whole numbers below 2 ** 31.
SIGNATURES = (1 << 27) - 1
MOST_LANES = 16


class GlooTransport:
    """Gloo's messages between processes, over TCP.

    Gloo gives each of its contexts a connection to every rank and picks the context by the tag (``getContext`` in
    torch's ProcessGroupGloo.cpp), which is how a lane keeps to its own.
    """

    def __init__(self, store: Store, mesh: FullMesh, timeout: timedelta) -> None:
        self._names, self._lanes = mesh.names, mesh.lanes
        self._peers = [peer for peer in range(len(mesh.names)) if peer != mesh.rank]
        self._closed = False
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = devices(mesh.lanes)
        options._threads = 1  # these are for collectives, of which there are none here
        options._timeout = timeout
        self._group: Any = dist.ProcessGroupGloo(store, mesh.rank, len(mesh.names), options)

    def send(self, tensor: torch.Tensor, peer: int, lane: int, signature: int) -> Pending:
        """As :class:`Transport` says."""
        return self._call(self._group.send, tensor, peer, signature * self._lanes + lane)

    def receive(self, tensor: torch.Tensor, peer: int, lane: int, signature: int) -> Pending:
        """As :class:`Transport` says."""
        return self._call(self._group.recv, tensor, peer, signature * self._lanes + lane)

    def _call(self, begin: Callable[..., Pending], tensor: torch.Tensor, peer: int, tag: int) -> Pending:
        if self._closed:
            raise PeerLost(self._names[peer], CLOSED)
        try:
            return begin([tensor], peer, tag)
        except RuntimeError as error:
            raise PeerLost(self._names[peer], _first_line(error)) from None

    def wait(self, pending: Pending, peer: int, lane: int) -> None:
        """As :class:`Transport` says."""
        try:
            pending.wait()
        except RuntimeError as error:
            raise PeerLost(self._names[peer], CLOSED if self._closed else _first_line(error)) from None

    def close(self) -> None:
        """As :class:`Transport` says."""
        self._closed = True
        for lane in range(self._lanes):
            cut_off(self._group, self._peers, SIGNATURES * self._lanes + lane)


def cut_off(group: Any, peers: Sequence[int], tag: int) -> None:
    """End all that a Gloo group has under way on the connections of that tag, here and on the peers.

    Nothing in torch closes Gloo's connections while somebody waits for a message, except a message that does not come
    in time: Gloo then closes all connections of its context (``waitRecv`` in gloo's tcp/unbound_buffer.cc). One from a
    peer whose connection is gone already fails at once and closes nothing, so others are asked too.

    :param tag: no message has it.
    """
    for peer in peers:
        try:
            nothing = torch.empty(1, dtype=torch.float32, device="cpu")
            group.recv([nothing], peer, tag).wait(_AT_ONCE)
        except Exception as error:
            if "Timed out" in str(error):
                break


def allow(connections: int) -> None:
    """Let this process open so many more: the 1,024 files that a login has as a rule are two hundred ranks' five
    connections to each other. Nothing changes where there is room, or may be no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + connections + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _first_line(error: BaseException) -> str:
    """Without Gloo's place in its sources."""
    return str(error).partition("\n")[0].rpartition("] ")[2]


def devices(lanes: int) -> Sequence[dist.ProcessGroupGloo.Device]:
    """One a lane, on the interfaces that GLOO_SOCKET_IFNAME names, as torch itself takes them."""
    names = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    if not names:
        return [dist.ProcessGroupGloo.create_default_device() for _ in range(lanes)]
    return [dist.ProcessGroupGloo.create_device(interface=names[lane % len(names)]) for lane in range(lanes)]
