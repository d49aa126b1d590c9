"""Transport of torch.distributed's point-to-point messages over several connections a pair, one for each channel."""

import os
import resource
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]

from plink.runtime.allreduce.algorithm_selection import Waitable
from plink.runtime.allreduce.mesh import FullMesh
from plink.runtime.allreduce.watchdog import PeerLost
from plink.transport.addresses import address_of

_SPARE_FILES = 256  # for the program
_MIN_TIMEOUT = timedelta(milliseconds=1)
CLOSED = "the connections of this group were closed"


class Transport(Protocol):
    """Messages between the ranks of a group, ordered for each channel and pair."""

    def send(self, tensor: torch.Tensor, peer: int, channel: int, tag: int) -> Waitable:
        """Begin to send a contiguous tensor, which must not change until that is done."""

    def receive(self, tensor: torch.Tensor, peer: int, channel: int, tag: int) -> Waitable:
        """Begin to receive into a contiguous tensor what ``peer`` sends with that tag."""

    def wait(self, pending: Waitable, peer: int, channel: int) -> None:
        """Block until a message to or from ``peer`` is done.

        :raises PeerLost: when it never will be.
        """

    def close(self) -> None:
        """Abort everything in progress: waiters get an error here, and on the peers, which lose connections."""


# Number of tags: Gloo's are integers below 2 ** 31, and combine a tag with a channel.
TAGS = (1 << 27) - 1


class GlooTransport:
    """Transport by Gloo, over TCP.

    Gloo gives each of its contexts a connection to every rank and selects the context by Gloo's tag (``getContext`` in
    torch's ProcessGroupGloo.cpp), so each channel has its own.
    """

    def __init__(self, store: Store, mesh: FullMesh, timeout: timedelta) -> None:
        self._names, self._channels = mesh.names, mesh.channels
        self._peers = [peer for peer in range(len(mesh.names)) if peer != mesh.rank]
        self._closed = False
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = gloo_devices(mesh.channels)
        options._threads = 1  # they serve collectives, which this group never runs
        options._timeout = timeout
        self._group: Any = dist.ProcessGroupGloo(store, mesh.rank, len(mesh.names), options)

    def send(self, tensor: torch.Tensor, peer: int, channel: int, tag: int) -> Waitable:
        """See :class:`Transport`."""
        return self._call(self._group.send, tensor, peer, tag * self._channels + channel)

    def receive(self, tensor: torch.Tensor, peer: int, channel: int, tag: int) -> Waitable:
        """See :class:`Transport`."""
        return self._call(self._group.recv, tensor, peer, tag * self._channels + channel)

    def _call(self, begin: Callable[..., Waitable], tensor: torch.Tensor, peer: int, gloo_tag: int) -> Waitable:
        if self._closed:
            raise PeerLost(self._names[peer], CLOSED)
        try:
            return begin([tensor], peer, gloo_tag)
        except RuntimeError as error:
            raise PeerLost(self._names[peer], _first_line(error)) from None

    def wait(self, pending: Waitable, peer: int, channel: int) -> None:
        """See :class:`Transport`."""
        try:
            pending.wait()
        except RuntimeError as error:
            raise PeerLost(self._names[peer], CLOSED if self._closed else _first_line(error)) from None

    def close(self) -> None:
        """See :class:`Transport`."""
        self._closed = True
        for channel in range(self._channels):
            abort_connections(self._group, self._peers, TAGS * self._channels + channel)


def abort_connections(group: Any, peers: Sequence[int], gloo_tag: int) -> None:
    """Abort everything that a Gloo group has in progress on the connections of a tag, here and on the peers.

    Torch closes Gloo's connections while a thread waits for a message in one case only: when a message times out, Gloo
    closes all connections of its context (``waitRecv`` in gloo's tcp/unbound_buffer.cc). A reception from a peer whose
    connection is gone already fails at once and closes nothing, so other peers are tried, too.

    :param gloo_tag: of no message.
    """
    for peer in peers:
        try:
            unused = torch.empty(1, dtype=torch.float32, device="cpu")
            group.recv([unused], peer, gloo_tag).wait(_MIN_TIMEOUT)
        except Exception as error:
            if "Timed out" in str(error):
                break


def raise_file_limit(connections: int) -> None:
    """Raise the limit of open files, where it does not allow so many more connections.

    A login's usual 1,024 files are two hundred ranks' five connections to each other.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = len(os.listdir("/proc/self/fd")) + connections + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        limit = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def _first_line(error: BaseException) -> str:
    """Return the first line of an error without the position in Gloo's sources, and without its advice."""
    return str(error).partition("\n")[0].partition(". This is typically ")[0].rpartition("] ")[2]


def rail_addresses() -> list[str]:
    """Return the address of each interface of GLOO_SOCKET_IFNAME, where there are several; else nothing.

    Empty, too, where one of them has no IPv4 address of its own.
    """
    names = _interfaces()
    addresses = [address_of(name) for name in names]
    return [address for address in addresses if address] if len(names) > 1 and all(addresses) else []


def _interfaces() -> list[str]:
    return [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]


def gloo_devices(channels: int) -> Sequence[dist.ProcessGroupGloo.Device]:
    """Return one device for each channel, on the interfaces of GLOO_SOCKET_IFNAME, as torch itself uses them."""
    names = _interfaces()
    if not names:
        return [dist.ProcessGroupGloo.create_default_device() for _ in range(channels)]
    return [dist.ProcessGroupGloo.create_device(interface=names[channel % len(names)]) for channel in range(channels)]
