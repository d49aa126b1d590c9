"""torchrun's rendezvous in plink's order: a node's group rank is its host's position in the order.

One node serves a store at the endpoint and decides who takes part (:mod:`plink.runtime.membership`); every node reads
its decision. The membership is fixed: a restart is a new round of the same hosts in the same order. In each round the
first host of the order serves a new store for the workers, at MASTER_ADDR and MASTER_PORT.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
from datetime import timedelta
from types import FrameType

from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig

from plink.errors import PlinkError
from plink.model.hosts import Host
from plink.records import workspace
from plink.runtime.allreduce.watchdog import ask_store
from plink.runtime.membership import (
    Registration,
    digest,
    find_self,
    folded,
    is_loopback,
    missing,
    numeric,
    read_roster,
    refusal,
    registration_from,
)
from plink.transport.addresses import canonical, family_of, local_addresses, source_address_for

PORT = 29500  # torchrun's default
_JOIN_S = 600  # as torchrun's other backends
_POLL_S = 0.05
_NODES_PER_POLL = 100  # nodes poll less often where there are more: one process answers them all
_WAITING_POLL_S = 1.0
# The deciding node may have begun later than those who wait for its decision.
_VERDICT_S = 15.0
_HANDSHAKE_S = 60.0
# Other nodes must be able to read the decision before the store ends.
_LINGER_S = 10.0
_LEAVING_S = 5.0
_BACKLOG = 4096
_KINDS: dict[str, type[RendezvousError]] = {
    "refused": RendezvousError,
    "late": RendezvousTimeoutError,
    "closed": RendezvousClosedError,
}


def requested_processes() -> int | None:
    """Return ``--nproc-per-node``, resolved; None when the caller is not torch's launcher.

    No argument of a rendezvous has it, so it is read from the frame of torch's launcher, which calls this.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        config = frame.f_locals.get("config")
        if isinstance(config, LaunchConfig):
            return config.nproc_per_node
        frame = frame.f_back
    return None


class PlinkRendezvous(RendezvousHandler):
    """Rendezvous handler in plink's order. See the module.

    Settings of ``--rdzv-conf``: ``node``, ``join_timeout`` (seconds), ``is_host`` (serve the store here, wherever the
    endpoint's name points).

    :param processes: ``--nproc-per-node``, None when unknown.
    :raises ValueError: for an elastic ``--nnodes=A:B``, and for invalid settings.
    """

    def __init__(self, parameters: RendezvousParameters, processes: int | None) -> None:
        if parameters.min_nodes != parameters.max_nodes:
            raise ValueError(
                f"--nnodes={parameters.min_nodes}:{parameters.max_nodes}: an order is for a fixed number of nodes"
            )
        self._parameters, self._processes = parameters, processes
        self._join_s = parameters.get_as_int("join_timeout", _JOIN_S) or _JOIN_S
        self._roster: tuple[Host, ...] = ()
        self._registration: Registration | None = None
        self._store: TCPStore | None = None
        self._is_server = False
        self._worker_store: TCPStore | None = None
        self._round = 0
        self._polled_at, self._waiting = 0.0, 0

    def get_backend(self) -> str:
        """See :class:`RendezvousHandler`; so for the other methods."""
        return "plink"

    @property
    def use_agent_store(self) -> bool:
        """Workers use the store that the first host's torchrun serves."""
        return True

    def get_run_id(self) -> str:
        return self._parameters.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        deadline = time.monotonic() + self._join_s
        if self._registration is None:
            self._registration = self._register()
        if self._store is None:
            self._store = self._open_store(deadline)
        self._round += 1
        try:
            return self._join(self._registration, self._in_round(self._round), deadline)
        except DistError as error:
            raise self._lost(error) from None

    def is_closed(self) -> bool:
        return self._store is not None and self._store.check([self._key("closed")])

    def set_closed(self) -> None:
        if self._store is not None and self._registration is not None:
            self._store.set(self._key("closed"), self._registration.label)

    def num_nodes_waiting(self) -> int:
        """Return how many nodes wait for the next round: their workers failed, and other nodes restart theirs, too."""
        if self._store is None or time.monotonic() < self._polled_at + _WAITING_POLL_S:
            return self._waiting
        try:
            self._waiting = self._in_round(self._round + 1).add("came", 0)
        except DistError as error:
            raise self._lost(error) from None
        self._polled_at = time.monotonic()
        return self._waiting

    def shutdown(self) -> bool:
        """Leave the job. No node can start another round without this one."""
        if self._store is None:
            return True
        try:
            self.set_closed()
            left_nodes = self._store.add(self._key("gone"), 1)
            deadline = time.monotonic() + _LEAVING_S
            while self._is_server and left_nodes < len(self._roster) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                left_nodes = self._store.add(self._key("gone"), 0)
        except DistError:
            return False
        return True

    # The identity of this node, and the store.

    def _register(self) -> Registration:
        hostname, addresses = socket.gethostname(), local_addresses()
        name, reason = None, None
        try:
            self._roster = read_roster(os.environ.get("PLINK_ORDER") or workspace.ORDER, os.environ.get("PLINK_HOSTS"))
            name = self._parameters.get("node") or os.environ.get("PLINK_NODE")
            name = name or find_self(self._roster, hostname, addresses).name
        except PlinkError as error:
            reason = str(error)
            if not self._parameters.endpoint.strip():
                raise RendezvousError(reason) from None
        nodes = self._parameters.max_nodes
        return Registration(
            name, hostname, tuple(addresses), os.getpid(), digest(self._roster), nodes, self._processes, reason
        )

    def _endpoint(self) -> tuple[str, int, bool]:
        """Return (host, port, whether this node serves the store there)."""
        endpoint = self._parameters.endpoint.strip()
        assert self._registration is not None
        if endpoint:
            host, port = parse_rendezvous_endpoint(endpoint, PORT)
            is_own = host in ("localhost", self._registration.hostname) or any(
                is_loopback(address) or address in self._registration.addresses for address in numeric(host)
            )
        else:
            host, port = self._roster[0].address, PORT
            is_own = self._registration.name == self._roster[0].name
        return host, port, bool(self._parameters.get_as_bool("is_host", is_own))

    def _open_store(self, deadline: float) -> TCPStore:
        host, port, is_own = self._endpoint()
        if is_own:
            addresses = numeric(host)
            store = _serve(addresses[0] if addresses else "0.0.0.0", port, self._join_s)
            if store is not None:
                self._is_server = True
                return store
        return self._connect(host, port, deadline)

    def _connect(self, host: str, port: int, deadline: float) -> TCPStore:
        assert self._registration is not None
        while True:
            try:
                with socket.create_connection((host, port), timeout=max(0.1, deadline - time.monotonic())):
                    break
            except OSError as error:
                if time.monotonic() >= deadline:
                    raise RendezvousConnectionError(
                        f"{self._registration.label} found no rendezvous at {host}:{port} within {self._join_s} s "
                        f"({error.strerror or error}); the host of this address must serve it"
                    ) from None
                time.sleep(_POLL_S * 4)
        # TCPStore would wait for ever for a silent server.
        limit_s = max(1.0, min(_HANDSHAKE_S, deadline - time.monotonic()))
        limit = timedelta(seconds=limit_s)
        store = ask_store(lambda: TCPStore(host, port, is_master=False, timeout=limit), limit_s)
        if store is None:
            raise RendezvousConnectionError(f"{self._registration.label}: the server at {host}:{port} is no rendezvous")
        store.set_timeout(timedelta(seconds=self._join_s))
        return store

    def _key(self, name: str) -> str:
        return f"plink/{self.get_run_id()}/{name}"

    def _in_round(self, number: int) -> PrefixStore:
        assert self._store is not None
        return PrefixStore(self._key(f"round-{number}"), self._store)

    def _lost(self, error: Exception) -> RendezvousConnectionError:
        host, port, _ = self._endpoint()
        message = str(error).splitlines()[0]
        return RendezvousConnectionError(
            f"lost the rendezvous at {host}:{port}: the torchrun that served it has ended ({message})"
        )

    # One round.

    def _join(self, node: Registration, store: PrefixStore, deadline: float) -> RendezvousInfo:
        number = store.add("came", 1) - 1
        store.set(f"node-{number}", node.encode())
        if self._is_server:
            self._decide(store, deadline)
        pause_s = _POLL_S * max(1.0, node.nodes / _NODES_PER_POLL)
        while not store.check(["verdict"]):
            if time.monotonic() > deadline + _VERDICT_S:
                raise RendezvousTimeoutError(f"{node.label}: no decision of the rendezvous within {self._join_s} s")
            time.sleep(pause_s)
        verdict = json.loads(store.get("verdict"))
        store.add("heard", 1)
        if verdict["error"] is not None:
            if self._is_server:
                self._linger(store, verdict["expected"])
            raise _KINDS[verdict["kind"]](verdict["error"])
        if number not in verdict["members"]:
            raise RendezvousError(f"{node.label} registered after the job had begun: its place is taken")
        rank = [host.name for host in self._roster].index(node.label)
        self._waiting = 0
        return RendezvousInfo(PrefixStore("agent", store), rank, len(self._roster), self._master(store, rank))

    def _decide(self, store: PrefixStore, deadline: float) -> None:
        registrations: list[Registration] = []
        own, kind = self._registration, "refused"
        assert own is not None
        # Without an order of its own it can judge nobody else.
        error = None if own.error is None else refusal(self._roster, [own])
        while error is None and (missing(self._roster, registrations) or not registrations):
            if store.check([f"node-{len(registrations)}"]):
                try:
                    registrations.append(registration_from(store.get(f"node-{len(registrations)}")))
                    error = refusal(self._roster, registrations)
                except PlinkError as invalid:
                    error = str(invalid)
            elif self._store is not None and self._store.check([self._key("closed")]):
                node = self._store.get(self._key("closed")).decode()
                error, kind = f"{node} left the job: its torchrun has ended", "closed"
            elif time.monotonic() > deadline:
                late = missing(self._roster, registrations)
                error, kind = f"{folded(late)}: no registration within {self._join_s} s (join_timeout)", "late"
            else:
                time.sleep(_POLL_S)
        expected = (
            len(registrations)
            if kind != "refused"
            else max([len(registrations), own.nodes, *(registration.nodes for registration in registrations)])
        )
        members = list(range(len(registrations)))
        store.set("verdict", json.dumps({"error": error, "kind": kind, "members": members, "expected": expected}))

    @staticmethod
    def _linger(store: PrefixStore, expected: int) -> None:
        until = time.monotonic() + _LINGER_S
        while store.add("heard", 0) < expected and time.monotonic() < until:
            time.sleep(_POLL_S)

    def _master(self, store: PrefixStore, rank: int) -> RendezvousStoreInfo:
        """Return where the workers find their store: served on the first host, new in each round."""
        if rank == 0:
            address = self._own_address()
            served = _serve(address, 0, self._join_s)
            assert served is not None  # a free port is never in use
            self._worker_store = served
            store.set("master", json.dumps([address, served.port]))
        address, port = json.loads(store.get("master"))
        return RendezvousStoreInfo(address, port)

    def _own_address(self) -> str:
        """Return this host's address for other nodes: the order's, ``--local-addr``, or the one towards the store."""
        assert self._registration is not None
        listed = next(host.address for host in self._roster if host.name == self._registration.label)
        own_addresses = [*self._registration.addresses, *(["127.0.0.1"] if is_loopback(listed) else [])]
        for address in [listed, self._parameters.local_addr or ""]:
            numeric_address = canonical(address)
            if numeric_address is not None and numeric_address in own_addresses:
                return numeric_address
        if self._parameters.local_addr:
            return self._parameters.local_addr
        resolved = [address for address in numeric(listed) if address in own_addresses]
        if resolved:
            return resolved[0]
        endpoint = numeric(self._endpoint()[0])
        try:
            return source_address_for(endpoint[0])
        except (OSError, IndexError):
            return listed


def _serve(address: str, port: int, timeout_s: float) -> TCPStore | None:
    """Serve a store at this address, or at every address of this machine where a network translates it.

    None when the port is in use.

    :raises RendezvousConnectionError: when it cannot be served here.
    """
    numeric_address = canonical(address) or next(iter(numeric(address)), "0.0.0.0")
    family = family_of(numeric_address)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((numeric_address, port))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            sock.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))
        sock.listen(_BACKLOG)
        host, bound = sock.getsockname()[:2]
        return TCPStore(
            {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host),
            bound,
            is_master=True,
            timeout=timedelta(seconds=timeout_s),
            wait_for_workers=False,
            master_listen_fd=sock.detach(),
        )
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise RendezvousConnectionError(f"cannot serve a rendezvous at {address}:{port}: {error.strerror}") from None
