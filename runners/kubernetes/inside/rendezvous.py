"""Bootstrap rendezvous of a job's pods: one pod listens, all (itself too) report who they are, before anything is run.

A report and an answer are one line of JSON each. The answer comes when all pods have reported, or when it is certain
that they never will: ``{"master": the first group's report}`` or ``{"refused": reason}``.

Runs in pods: standard library only.
"""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import threading
import time
from typing import Any, NamedTuple

from plink.transport.hello_server import HelloServer

_MAX_REPORT_BYTES = 1 << 20
_HELLO_TIMEOUT_S = 30.0
_POLL_S = 1.0
_RETRY_S = 0.5
_CONNECT_TIMEOUT_S = 5.0
_ANSWER_TIMEOUT_S = 60.0
_BACKLOG = 4096
_MAX_NAMED_NODES = 4
_REPORT_KEYS = {"group", "pod", "node", "problems"}


class Bootstrap(NamedTuple):
    """How the pods of a job find each other before anything is run.

    ``job``: which run this is; reports of any other are dropped, for pods of an earlier one may still run. ``host`` and
    ``port``: where one pod listens. ``wait_s``: within which all have to report.
    """

    job: str
    host: str
    port: int
    wait_s: float
    allow_version_mismatch: bool


class RendezvousServer:
    """The pod that listens: a thread that collects reports until every group of the order has sent one.

    :param nodes: of the groups, in rank order.
    """

    def __init__(self, nodes: list[str], bootstrap: Bootstrap) -> None:
        self._nodes, self._job = nodes, bootstrap.job
        self._allow_version_mismatch = bootstrap.allow_version_mismatch
        self._reports: dict[int, dict[str, Any]] = {}
        self.refused: str | None = None
        self._until = time.monotonic() + bootstrap.wait_s
        _raise_file_limit()
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        port = bootstrap.port
        self._listener = socket.create_server(("", port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="plink-rendezvous")
        self._thread.start()

    def finish(self) -> tuple[dict[int, dict[str, Any]], str | None]:
        """Wait until all pods are answered; return the reports by group, and why nothing can be run, if so."""
        while self.refused is None and len(self._reports) < len(self._nodes) and self._thread.is_alive():
            self._thread.join(_POLL_S)
        self._thread.join(_ANSWER_TIMEOUT_S)
        return self._reports, self.refused

    def _serve(self) -> None:
        server = HelloServer(self._listener, self._parse, _MAX_REPORT_BYTES, _HELLO_TIMEOUT_S)
        refused: str | None = None
        while refused is None and len(self._reports) < len(self._nodes):
            for report in server.poll(_POLL_S):
                refused = refused or self._add(report)
            if refused is None and time.monotonic() > self._until and len(self._reports) < len(self._nodes):
                refused = self._missing_nodes()
        if refused is None and not self._allow_version_mismatch:
            refused = _version_mismatch(self._reports)
        self.refused = refused
        answer: dict[str, Any] = {"master": self._reports[0]} if refused is None else {"refused": refused}
        server.answer((json.dumps(answer) + "\n").encode())
        server.close()
        self._listener.close()

    def _parse(self, line: bytes) -> dict[str, Any] | None:
        """Return the report of a pod of this job; None for what anybody else in the cluster may send."""
        report: Any = None
        with contextlib.suppress(ValueError, RecursionError):
            report = json.loads(line)
        if not isinstance(report, dict) or report.get("job") != self._job or not report.keys() >= _REPORT_KEYS:
            return None
        problems = report["problems"] if isinstance(report["problems"], list) else [None]
        group = report["group"]
        valid = (group is None and problems) or (type(group) is int and 0 <= group < len(self._nodes))
        return report if valid and all(isinstance(t, str) for t in (report["pod"], report["node"], *problems)) else None

    def _add(self, report: dict[str, Any]) -> str | None:
        """Store a report; return why the job cannot be run, if it says so."""
        group, pod, node = report["group"], report["pod"], report["node"]
        if report["problems"]:
            return f"{node}: {'; '.join(report['problems'])}"
        earlier = self._reports.setdefault(group, report)
        if earlier["pod"] != pod:
            return f"the pods {earlier['pod']} and {pod} are both on the node {node}"
        self._reports[group] = report
        return None

    def _missing_nodes(self) -> str:
        missing = [node for group, node in enumerate(self._nodes) if group not in self._reports]
        return f"{len(missing)} of {len(self._nodes)} nodes have no pod that reports: {name_some(missing)}"


def name_some(nodes: list[str]) -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(nodes) - _MAX_NAMED_NODES} more" if len(nodes) > _MAX_NAMED_NODES else ""
    return ", ".join(nodes[:_MAX_NAMED_NODES]) + more


def send_report(bootstrap: Bootstrap, report: dict[str, Any], timeout_s: float) -> dict[str, Any]:
    """Report to the listening pod and return its answer; retries, for its name may not resolve before it is up."""
    line = (json.dumps({"job": bootstrap.job, **report}) + "\n").encode()
    until = time.monotonic() + timeout_s
    last_error = "no answer"
    while time.monotonic() < until:
        try:
            with socket.create_connection((bootstrap.host, bootstrap.port), timeout=_CONNECT_TIMEOUT_S) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                # The listening pod has a limit of its own, and then says who is missing: wait for that answer.
                sock.settimeout(max(0.1, until - time.monotonic()) + _ANSWER_TIMEOUT_S)
                sock.sendall(line)
                with sock.makefile("rb") as file:
                    answer = json.loads(file.readline(_MAX_REPORT_BYTES))
            if isinstance(answer, dict):
                return answer
        except (OSError, ValueError, RecursionError) as error:
            last_error = str(error)
        time.sleep(_RETRY_S)
    refused = f"no answer from {bootstrap.host} port {bootstrap.port} ({last_error}) within {timeout_s:.0f} s"
    return {"refused": refused}


def resolve_server(bootstrap: Bootstrap) -> str | None:
    """Return the numeric address of the listening pod once its name resolves; None if it does not in time."""
    until = time.monotonic() + bootstrap.wait_s
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            return str(socket.getaddrinfo(bootstrap.host, bootstrap.port, type=socket.SOCK_STREAM)[0][4][0])
        time.sleep(_RETRY_S)
    return None


def _version_mismatch(reports: dict[int, dict[str, Any]]) -> str | None:
    first_node: dict[str, str] = {}
    for report in reports.values():
        versions = report.get("versions")
        if versions is not None:
            first_node.setdefault(json.dumps(versions, sort_keys=True), report["node"])
    if len(first_node) < 2:
        return None
    return "nodes differ: " + ", ".join(f"{versions} on {node}" for versions, node in list(first_node.items())[:3])


def _raise_file_limit() -> None:
    """Allow this process one connection a pod, as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
