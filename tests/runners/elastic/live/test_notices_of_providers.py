"""A provider's metadata service says that one host of a job under way will be taken away: it leaves in order.

All hosts are processes on this machine and ask one service, which goes by whose socket a question comes from, as a
provider's goes by the machine.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from tests.runners.elastic.live.elastic import Elastic
from tests.runtime.elastic.metadata_server import Reply, metadata, text, wait_until

RUBBISH = (text("oops", 500), text("<html>maintenance</html>"), text("", 302, Location="/elsewhere"), text("TRUE", 503))


def primary_of(port: int, service: int) -> int | None:
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


class Gcp:
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
        assert (method, path) == ("GET", "/computeMetadata/v1/instance/preempted")
        assert headers["metadata-flavor"] == "Google"
        gone = self.gone is not None and primary_of(int(headers[":port"]), self.port) == self.gone
        return text("TRUE" if gone else "FALSE")


def warned(job: Elastic, name: str) -> None:
    """One host has left in order, with the provider's 30 s, and nothing was redone; the others stayed to the end."""
    assert not job.events("rolled back")
    for other in {"h0", "h1", "h2"} - {name}:
        assert [line["event"] for line in job.events("host") if line["host"] == other] == ["joined"]
    lines = [line for line in job.events("host") if line["host"] == name]
    assert [line["event"] for line in lines] == ["joined", "warned", "released", "left"]
    assert lines[1]["why"] == "gcp: preempted"
    assert 15 < lines[1]["seconds"] <= 30


def serving(job: Elastic) -> str:
    """A transient host that serves partitions: the one with the most to hand over."""
    hosts = job.clock(5)["hosts"]
    return next(str(host["name"]) for host in hosts if host["serves"] and host["tier"] == "transient")


def test_a_host_whose_provider_takes_it_away_leaves_in_order(tmp_path: Path) -> None:
    """Google's; what the others say is read in tests/runtime/elastic/test_notices.py."""
    messages = Gcp()
    with metadata(messages) as service:
        messages.port = service.port
        settings = {"notices": f"gcp=http://127.0.0.1:{service.port}"}
        with Elastic(tmp_path, "rtt", clocks=70, settings=settings, more=("--work-s", "0.02")) as job:
            name = serving(job)
            messages.gone = job.pid(name)
            job.until(lambda status: name not in {host["name"] for host in status["hosts"]})
            assert job.ended is None
            job.finish()
    warned(job, name)
    assert not [note for note in job.notes if "no notices" in note]


def test_a_service_that_makes_no_sense_for_a_while_takes_no_host_away(tmp_path: Path) -> None:
    """That is in the run's notes, and what it says afterwards counts."""
    messages = Gcp()
    with metadata(messages) as service:
        messages.port = service.port
        settings = {"notices": f"gcp=http://127.0.0.1:{service.port}"}
        with Elastic(tmp_path, "rtt", clocks=110, settings=settings, more=("--work-s", "0.02")) as job:
            name = serving(job)
            messages.trouble = itertools.cycle(RUBBISH)
            wait_until(lambda: messages.troubled >= 2 * len(RUBBISH))
            assert {host["name"] for host in job.status()["hosts"]} == {"h0", "h1", "h2"}
            assert {host["state"] for host in job.status()["hosts"]} == {"there"}
            messages.gone, messages.trouble = job.pid(name), None
            job.until(lambda status: name not in {host["name"] for host in status["hosts"]})
            job.finish()
        request = [path for _, path in service.requests]
    warned(job, name)
    assert len([note for note in job.notes if f"no notices from gcp at 127.0.0.1:{service.port}" in note]) == 3
    assert "/elsewhere" not in request
