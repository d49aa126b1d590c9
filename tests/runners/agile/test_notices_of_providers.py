"""A provider's metadata service says that one host of a job under way will be taken away: it leaves in order.

All hosts are processes on this machine and ask one service, which goes by whose socket a question comes from, as a
provider's goes by the machine.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.runners.agile.elastic import Elastic
from tests.runtime.agileml.metadata_server import Reply, metadata, text, wait_until

pytestmark = pytest.mark.crowd

RUBBISH = (text("oops", 500), text("<html>maintenance</html>"), text("", 302, Location="/elsewhere"), text("TRUE", 503))


def in_seconds(seconds: float, form: str) -> str:
    """From now, as services write it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime(form)


def owner_of(port: int, service: int) -> int | None:
    """The process whose connection to a port of this machine comes from that port (proc(5): net/tcp)."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, remote = (int(address.partition(":")[2], 16) for address in fields[1:3])
        if (local, remote) == (port, service):
            wanted = f"socket:[{fields[9]}]"
            for fd in Path("/proc").glob("[0-9]*/fd/*"):
                with contextlib.suppress(OSError):
                    if os.readlink(fd) == wanted:
                        return int(fd.parts[2])
    return None


class Provider:
    """``gone``: the process whose machine goes, once it is known. ``trouble``: what is answered instead."""

    def __init__(self) -> None:
        self.gone: int | None = None
        self.trouble: Iterator[Reply] | None = None
        self.troubled = 0
        self.port = 0

    def __call__(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        if self.trouble is not None:
            self.troubled += 1
            return next(self.trouble)
        return self.answer(method, path, headers, owner_of(int(headers[":port"]), self.port))

    def answer(self, method: str, path: str, headers: dict[str, str], who: int | None) -> Reply:
        """In working order, to the machine of a process."""
        raise NotImplementedError


class Aws(Provider):
    """A token of its own to each machine, and none of another's."""

    def answer(self, method: str, path: str, headers: dict[str, str], who: int | None) -> Reply:
        if (method, path) == ("PUT", "/latest/api/token"):
            return text(f"token-of-{who}")
        if headers.get("x-aws-ec2-metadata-token") != f"token-of-{who}":
            return text("Unauthorized", 401)
        assert (method, path) == ("GET", "/latest/meta-data/spot/instance-action")
        if who != self.gone:
            return text("<html>404 - Not Found</html>", 404)
        return text(json.dumps({"action": "terminate", "time": in_seconds(118, "%Y-%m-%dT%H:%M:%SZ")}))


class Gcp(Provider):
    def answer(self, method: str, path: str, headers: dict[str, str], who: int | None) -> Reply:
        assert (method, path) == ("GET", "/computeMetadata/v1/instance/preempted")
        assert headers["metadata-flavor"] == "Google"
        return text("TRUE" if who == self.gone else "FALSE")


class Azure(Provider):
    """A scale set's: all of its machines are told of every event, by names."""

    def answer(self, method: str, path: str, headers: dict[str, str], who: int | None) -> Reply:
        assert (method, headers["metadata"]) == ("GET", "true")
        if path.startswith("/metadata/instance/compute/name?"):
            return text(f"spot_{who}")
        assert path.startswith("/metadata/scheduledevents?")
        events = [] if self.gone is None else [self.event("Preempt", self.gone), self.event("Reboot", 1)]
        return text(json.dumps({"DocumentIncarnation": len(events), "Events": events}))

    @staticmethod
    def event(kind: str, who: int) -> dict[str, object]:
        """As it is announced."""
        return {
            "EventId": f"id-{kind}", "EventType": kind, "ResourceType": "VirtualMachine", "EventStatus": "Scheduled",
            "Resources": [f"Spot_{who}"], "NotBefore": in_seconds(30, "%a, %d %b %Y %H:%M:%S GMT"),
        }  # fmt: skip


def warned(job: Elastic, name: str, why: str, most_s: float) -> None:
    """One host has left in order, with that much time, and nothing was redone; the others stayed to the end."""
    assert not job.events("rolled back")
    for other in {"h0", "h1", "h2"} - {name}:
        assert [line["event"] for line in job.events("host") if line["host"] == other] == ["joined"]
    lines = [line for line in job.events("host") if line["host"] == name]
    assert [line["event"] for line in lines] == ["joined", "warned", "let go", "left"]
    assert lines[1]["why"] == why
    assert most_s - 15 < lines[1]["seconds"] <= most_s


def serving(job: Elastic) -> str:
    """A transient host that serves partitions: the one with the most to hand over."""
    hosts = job.clock(5)["hosts"]
    return next(str(host["name"]) for host in hosts if host["serves"] and host["tier"] == "transient")


@pytest.mark.parametrize(
    ("provider", "make", "clocks", "why", "most_s"),
    [
        ("aws", Aws, 110, "aws: terminate", 120),  # asked every five seconds
        ("gcp", Gcp, 70, "gcp: preempted", 30),
        ("azure", Azure, 70, "azure: Preempt", 30),
    ],
)
def test_a_host_whose_provider_takes_it_away_leaves_in_order(
    provider: str, make: Callable[[], Provider], clocks: int, why: str, most_s: float, tmp_path: Path
) -> None:
    told = make()
    with metadata(told) as service:
        told.port = service.port
        settings = {"notices": f"{provider}=http://127.0.0.1:{service.port}"}
        with Elastic(tmp_path, "rtt", clocks=clocks, settings=settings, more=("--work-s", "0.02")) as job:
            name = serving(job)
            told.gone = job.pid(name)
            job.until(lambda status: name not in {host["name"] for host in status["hosts"]})
            assert job.ended is None
            job.finish()
    warned(job, name, why, most_s)
    assert not [note for note in job.notes if "no notices" in note]


def test_a_service_that_makes_no_sense_for_a_while_takes_no_host_away(tmp_path: Path) -> None:
    """That is in the run's notes, and what it says afterwards counts."""
    told = Gcp()
    with metadata(told) as service:
        told.port = service.port
        settings = {"notices": f"gcp=http://127.0.0.1:{service.port}"}
        with Elastic(tmp_path, "rtt", clocks=110, settings=settings, more=("--work-s", "0.02")) as job:
            name = serving(job)
            told.trouble = itertools.cycle(RUBBISH)
            wait_until(lambda: told.troubled >= 2 * len(RUBBISH))
            assert {host["name"] for host in job.status()["hosts"]} == {"h0", "h1", "h2"}
            assert {host["state"] for host in job.status()["hosts"]} == {"there"}
            told.gone, told.trouble = job.pid(name), None
            job.until(lambda status: name not in {host["name"] for host in status["hosts"]})
            job.finish()
        asked = [path for _, path in service.asked]
    warned(job, name, "gcp: preempted", 30)
    assert len([note for note in job.notes if f"no notices from gcp at 127.0.0.1:{service.port}" in note]) == 3
    assert "/elsewhere" not in asked
