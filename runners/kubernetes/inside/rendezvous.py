"""Where the pods of a job meet before anything is run: one of them listens, all of them (itself too) tell who they are.

A report and an answer are one line of JSON each. The answer comes when all are there, or when it is known that they
never will be: ``{"master": the first group's report}`` or ``{"refused": why}``.

Runs in pods: standard library only.
"""

from __future__ import annotations

import contextlib
import json
import resource
import selectors
import socket
import threading
import time
from typing import Any, NamedTuple

_LONGEST_LINE = 1 << 20
_ROOM = 1 << 26  # bytes of all lines that have no end yet
_RETRY_S = 0.5
_CONNECT_S = 5.0
_ANSWERED_S = 60.0
_BACKLOG = 4096
_PARTS = {"group", "pod", "node", "problems"}


class Bootstrap(NamedTuple):
    """How the pods of a job find each other before anything is run.

    ``job``: which run this is; reports of any other are dropped, for pods of an earlier one may still run. ``host`` and
    ``port``: where one pod listens. ``wait_s``: within which all have to report. ``mixed_versions``: allowed.
    """

    job: str
    host: str
    port: int
    wait_s: float
    mixed_versions: bool


class RendezvousServer:
    """The pod that listens. Collects in a thread until every group of the order has reported.

    :param nodes: of the groups, in rank order.
    """

    def __init__(self, nodes: list[str], bootstrap: Bootstrap) -> None:
        self._nodes, self._job, self._mixed = nodes, bootstrap.job, bootstrap.mixed_versions
        self._reports: dict[int, dict[str, Any]] = {}
        self.refused: str | None = None
        self._until = time.monotonic() + bootstrap.wait_s
        _many_files()
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        port = bootstrap.port
        self._listener = socket.create_server(("", port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="plink-meeting")
        self._thread.start()

    def end(self) -> tuple[dict[int, dict[str, Any]], str | None]:
        """Wait until all were answered; the reports by group, and why nothing can be run."""
        while self.refused is None and len(self._reports) < len(self._nodes) and self._thread.is_alive():
            self._thread.join(1.0)
        self._thread.join(_ANSWERED_S)
        return self._reports, self.refused

    def _serve(self) -> None:
        reports = self._reports
        waiting: dict[socket.socket, bytearray] = {}
        known: set[socket.socket] = set()
        refused: str | None = None
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while refused is None and len(reports) < len(self._nodes):
                if time.monotonic() > self._until:
                    refused = self._missing(reports)
                for key, _ in selector.select(1.0):
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    if sock is self._listener:
                        with contextlib.suppress(OSError):  # who has gone again before
                            new, _ = sock.accept()
                            new.setblocking(False)
                            waiting[new] = bytearray()
                            selector.register(new, selectors.EVENT_READ)
                        continue
                    data = b""
                    with contextlib.suppress(OSError):
                        data = sock.recv(1 << 16)
                    waiting[sock] += data
                    over = not data or len(waiting[sock]) > _LONGEST_LINE or sum(map(len, waiting.values())) > _ROOM
                    if not over and data.endswith(b"\n"):
                        report = self._report(bytes(waiting[sock]))
                        over = report is None  # whoever it is, it is not told anything
                        waiting[sock].clear()
                        if report is not None:
                            refused = refused or self._take(report, reports)
                            known.add(sock)
                    if over:
                        selector.unregister(sock)
                        del waiting[sock]
                        known.discard(sock)
                        sock.close()
        if refused is None and not self._mixed:
            refused = _different(reports)
        self.refused = refused
        answer: dict[str, Any] = {"master": reports[0]} if refused is None else {"refused": refused}
        line = (json.dumps(answer) + "\n").encode()
        for sock in waiting:
            sock.settimeout(_CONNECT_S)
            with contextlib.suppress(OSError):
                sock.sendall(line if sock in known else b"")
            sock.close()
        self._listener.close()

    def _report(self, line: bytes) -> dict[str, Any] | None:
        """What a pod of this job says; None for the words of anybody else."""
        report: Any = None
        # Anybody in the cluster can connect: what is no report of this job must not end the meeting.
        with contextlib.suppress(ValueError, RecursionError):
            report = json.loads(line)
        if not isinstance(report, dict) or report.get("job") != self._job or not report.keys() >= _PARTS:
            return None
        texts = (report.get("pod"), report.get("node"), *_listed(report.get("problems")))
        group = report.get("group")
        known = (group is None and report.get("problems")) or (type(group) is int and 0 <= group < len(self._nodes))
        return report if known and all(isinstance(text, str) for text in texts) else None

    def _take(self, report: dict[str, Any], reports: dict[int, dict[str, Any]]) -> str | None:
        """Note a report; why the job cannot be run, if it says so."""
        group, pod, node = report["group"], report["pod"], report["node"]
        if report["problems"]:
            return f"{node}: {'; '.join(report['problems'])}"
        before = reports.setdefault(group, report)
        if before["pod"] != pod:
            return f"the pods {before['pod']} and {pod} are both on the node {node}"
        reports[group] = report
        return None

    def _missing(self, reports: dict[int, dict[str, Any]]) -> str:
        missing = [node for group, node in enumerate(self._nodes) if group not in reports]
        some = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        return f"{len(missing)} of {len(self._nodes)} nodes have no pod that reports: {some}"


def _listed(problems: Any) -> list[Any]:
    return problems if isinstance(problems, list) else [None]


def report_to(bootstrap: Bootstrap, report: dict[str, Any], wait_s: float) -> dict[str, Any]:
    """What the meeting answers; its name may not resolve, and nobody listen there, until its pod is up."""
    line = (json.dumps({"job": bootstrap.job, **report}) + "\n").encode()
    until = time.monotonic() + wait_s
    trouble = "no answer"
    while time.monotonic() < until:
        try:
            with socket.create_connection((bootstrap.host, bootstrap.port), timeout=_CONNECT_S) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                # The meeting has a limit of its own, and says who is missing: it is given the time to.
                sock.settimeout(max(0.1, until - time.monotonic()) + _ANSWERED_S)
                sock.sendall(line)
                with sock.makefile("rb") as file:
                    answer = json.loads(file.readline())
            if isinstance(answer, dict):
                return answer
        except (OSError, ValueError, RecursionError) as error:
            trouble = str(error)
        time.sleep(_RETRY_S)
    return {"refused": f"nobody answers at {bootstrap.host} port {bootstrap.port} ({trouble}) within {wait_s:.0f} s"}


def address_towards(bootstrap: Bootstrap) -> str | None:
    """The numeric address of the meeting, once its name resolves."""
    until = time.monotonic() + bootstrap.wait_s
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            return str(socket.getaddrinfo(bootstrap.host, bootstrap.port, type=socket.SOCK_STREAM)[0][4][0])
        time.sleep(_RETRY_S)
    return None


def _different(reports: dict[int, dict[str, Any]]) -> str | None:
    kinds: dict[str, str] = {}
    for report in reports.values():
        versions = report.get("versions")
        if versions is not None:
            kinds.setdefault(json.dumps(versions, sort_keys=True), report["node"])
    if len(kinds) < 2:
        return None
    return "nodes differ: " + ", ".join(f"{kind} on {node}" for kind, node in list(kinds.items())[:3])


def _many_files() -> None:
    """One connection a pod: as many as this process may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
