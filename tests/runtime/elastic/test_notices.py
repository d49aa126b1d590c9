"""Notices of eviction from real HTTP servers that answer as the providers' services do, or as they should not."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from plink.errors import UsageError
from plink.runtime.elastic.host import preemption as asking
from plink.runtime.elastic.host.preemption import (
    Azure,
    Gcp,
    InvalidResponse,
    MetadataClient,
    Notices,
    PreemptionNotice,
    Source,
    parse_source,
)
from tests.runtime.elastic.metadata_server import Metadata, Reply, metadata, text, wait_until
from tests.runtime.elastic.stores import HANGS_S

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DATE = format_datetime(NOW, usegmt=True)
ACTION = "/latest/meta-data/spot/instance-action"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is late because the machine is busy."""
    monkeypatch.setattr(asking, "_TIMEOUT_S", HANGS_S)
    monkeypatch.setattr(MetadataClient.ask, "__defaults__", (HANGS_S,))


class Recorder:
    """What was told."""

    def __init__(self) -> None:
        self.notices: list[PreemptionNotice] = []
        self.troubles: list[str] = []


@contextlib.contextmanager
def listening(provider: str, port: int) -> Iterator[Recorder]:
    output = Recorder()
    source = Source(provider, "127.0.0.1", port)
    notices = Notices(source, output.notices.append, output.troubles.append, every_s=0.01)
    try:
        yield output
    finally:
        notices.close()


def asked_again(service: Metadata, times: int = 3) -> None:
    """Wait until a few more questions have been asked."""
    so_far = len(service.requests)
    wait_until(lambda: len(service.requests) >= so_far + times)


class Ec2:
    """IMDSv2: tokens last until :meth:`expire`; ``action``: None is 404."""

    def __init__(self) -> None:
        self.token = 1
        self.action: Reply | None = None

    def expire(self) -> None:
        self.token += 1

    def mark(self, action: str, seconds: float, z: str = "Z") -> None:
        when = (NOW + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S") + z
        self.action = text(json.dumps({"action": action, "time": when}), Date=DATE)

    def __call__(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        if (method, path) == ("PUT", "/latest/api/token"):
            assert 1 <= int(headers["x-aws-ec2-metadata-token-ttl-seconds"]) <= 21600
            return text(f"token-{self.token}")
        if headers.get("x-aws-ec2-metadata-token") != f"token-{self.token}":
            return text("Unauthorized", 401)
        assert (method, path) == ("GET", ACTION)
        return self.action or text("<html>404 - Not Found</html>", 404)


def test_aws_notice_has_a_deadline_and_comes_once() -> None:
    ec2 = Ec2()
    with metadata(ec2) as service, listening("aws", service.port) as output:
        asked_again(service)
        assert output.notices == []
        ec2.mark("terminate", 118)
        wait_until(lambda: output.notices)
        asked_again(service)
    assert output.notices == [PreemptionNotice(118.0, "aws: terminate")]
    assert output.troubles == []


@pytest.mark.parametrize(
    ("action", "seconds", "z", "expected"),
    [
        ("stop", 60, "", 60.0),  # the guide shows times with and without Z
        ("hibernate", 90, "Z", 0.0),  # which begins at once
        ("terminate", -500, "Z", 0.0),
        ("terminate", 86_400, "Z", 120.0),
    ],
)
def test_aws_times(action: str, seconds: float, z: str, expected: float) -> None:
    ec2 = Ec2()
    ec2.mark(action, seconds, z)
    with metadata(ec2) as service, listening("aws", service.port) as output:
        wait_until(lambda: output.notices)
    assert output.notices == [PreemptionNotice(expected, f"aws: {action}")]


def test_without_a_clock_in_the_answer_ours_counts() -> None:
    ec2 = Ec2()
    when = (datetime.now(UTC) + timedelta(seconds=100)).isoformat()
    ec2.action = text(json.dumps({"action": "stop", "time": when}))
    with metadata(ec2) as service, listening("aws", service.port) as output:
        wait_until(lambda: output.notices)
    assert 60 < output.notices[0].seconds <= 100


def test_a_token_that_expires_is_had_anew() -> None:
    ec2 = Ec2()
    with metadata(ec2) as service, listening("aws", service.port) as output:
        asked_again(service)
        ec2.expire()
        asked_again(service, 6)
        ec2.mark("stop", 60)
        wait_until(lambda: output.notices)
    assert [method for method, _ in service.requests].count("PUT") == 2
    assert output.troubles == []


def test_second_eviction_is_reported() -> None:
    """A machine that hibernated wakes with its programs, and may be taken away again."""
    ec2 = Ec2()
    ec2.mark("hibernate", 10)
    with metadata(ec2) as service, listening("aws", service.port) as output:
        wait_until(lambda: output.notices)
        ec2.action = None
        asked_again(service)
        ec2.mark("hibernate", 5000)
        wait_until(lambda: len(output.notices) == 2)


def test_gcp_notice_has_the_rest_of_thirty_seconds() -> None:
    now, state = [100.0], ["FALSE"]

    def answer(method: str, path: str, headers: dict[str, str]) -> Reply:
        assert (method, path) == ("GET", "/computeMetadata/v1/instance/preempted")
        assert headers["metadata-flavor"] == "Google"
        return text(f"{state[0]}\n")

    with metadata(answer) as service:
        line, gcp = MetadataClient("127.0.0.1", service.port), Gcp(lambda: now[0])
        assert gcp.ask(line) == {}
        now[0], state[0] = 104.0, "TRUE"
        assert gcp.ask(line) == {"preempted": PreemptionNotice(26.0, "gcp: preempted")}
        now[0] = 200.0
        assert gcp.ask(line) == {"preempted": PreemptionNotice(0.0, "gcp: preempted")}
        assert Gcp().ask(line)["preempted"].seconds == 30.0
        with listening("gcp", service.port) as output:
            wait_until(lambda: output.notices)
            asked_again(service)
        assert len(output.notices) == 1


class Vm:
    """Scheduled Events of a machine called spot_3; ``events``: what stands in the document."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def add(self, event: str, kind: str, names: list[str], not_before: str, status: str = "Scheduled") -> None:
        self.events.append(
            {"EventId": event, "EventType": kind, "ResourceType": "VirtualMachine", "Resources": names,
             "EventStatus": status, "NotBefore": not_before, "Description": "", "EventSource": "Platform",
             "DurationInSeconds": -1}
        )  # fmt: skip

    def __call__(self, method: str, path: str, headers: dict[str, str]) -> Reply:
        if headers.get("metadata") != "true":
            return text("Bad request", 400)
        if path == "/metadata/instance/compute/name?api-version=2021-02-01&format=text":
            return text("Spot_3")
        assert (method, path) == ("GET", "/metadata/scheduledevents?api-version=2020-07-01")
        return text(json.dumps({"DocumentIncarnation": len(self.events), "Events": self.events}), Date=DATE)


def http_date(seconds: float) -> str:
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)


def test_azure_notice_is_of_this_machine_only() -> None:
    vm = Vm()
    vm.add("1", "Preempt", ["spot_4"], http_date(20))
    for kind in ("Reboot", "Redeploy", "Freeze"):
        vm.add(kind, kind, ["spot_3"], http_date(20))
    with metadata(vm) as service, listening("azure", service.port) as output:
        asked_again(service, 5)
        assert output.notices == []
        vm.add("2", "Preempt", ["spot_4", "spot_3"], http_date(28))
        wait_until(lambda: output.notices)
        vm.events.pop()
        vm.add("2", "Preempt", ["spot_3"], "", "Started")
        asked_again(service)
        vm.add("3", "Terminate", ["SPOT_3"], http_date(300))
        wait_until(lambda: len(output.notices) == 2)
    assert output.notices == [PreemptionNotice(28.0, "azure: Preempt"), PreemptionNotice(300.0, "azure: Terminate")]
    assert output.troubles == []
    assert len({path for _, path in service.requests}) == 2
    assert [path for _, path in service.requests if "compute/name" in path] == [service.requests[0][1]]


def test_azure_what_has_begun_leaves_no_time() -> None:
    vm = Vm()
    vm.add("1", "Preempt", ["spot_3"], "", "Started")
    with metadata(vm) as service, listening("azure", service.port) as output:
        wait_until(lambda: output.notices)
    assert output.notices == [PreemptionNotice(0.0, "azure: Preempt")]


def test_azure_s_first_answer_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    vm, slow = Vm(), [True]

    def answer(method: str, path: str, headers: dict[str, str]) -> Reply:
        reply = vm(method, path, headers)
        if "scheduledevents" in path and slow.pop():
            reply.pause_s = 0.5
            slow.append(False)
        else:
            slow.append(True)
        return reply

    monkeypatch.setattr(asking, "_TIMEOUT_S", 0.2)
    with metadata(answer) as service:
        assert Azure().ask(MetadataClient("127.0.0.1", service.port)) == {}


SILLY = {
    "500": text("oops", 500),
    "403": text("", 403),
    "garbage": text("\x00\xff]["),
    "no object": text("[1, 2]"),
    "deep": text("[" * 100_000),
    "another action": text('{"action": "dance", "time": "2026-03-01T12:00:00Z"}'),
    "long": text("x" * 300_000),
    "redirect": text("", 302, Location="/elsewhere"),
    "events": text('{"Events": 7}'),
    "event": text('{"Events": ["x"]}'),
}


@pytest.mark.parametrize(
    ("provider", "kind"),
    [("aws", "500"), ("aws", "garbage"), ("aws", "another action"), ("aws", "redirect"), ("gcp", "403"),
     ("gcp", "long"), ("azure", "no object"), ("azure", "deep"), ("azure", "events"), ("azure", "event")],
)  # fmt: skip
def test_invalid_answer_is_reported_once_and_polling_continues(provider: str, kind: str) -> None:
    reply, silly = SILLY[kind], [True]
    good = {"aws": Ec2(), "gcp": lambda *_: text("TRUE"), "azure": Vm()}[provider]
    if isinstance(good, Ec2):
        good.mark("stop", 60)
    if isinstance(good, Vm):
        good.add("1", "Preempt", ["spot_3"], http_date(20))

    def answer(method: str, path: str, headers: dict[str, str]) -> Reply:
        aside = method == "PUT" or "compute/name" in path
        return reply if silly[0] and not aside else good(method, path, headers)

    with metadata(answer) as service, listening(provider, service.port) as output:
        asked_again(service, 6)
        assert output.notices == []
        assert len(output.troubles) == 1
        silly[0] = False
        wait_until(lambda: output.notices)
        silly[0] = True
        wait_until(lambda: len(output.troubles) == 2)  # a new trouble
    (line,) = set(output.troubles)
    assert line.startswith(f"no notices from {provider} at 127.0.0.1:{service.port} for now: ")
    assert "\n" not in line
    assert len(line) < 200
    assert "/elsewhere" not in {path for _, path in service.requests}


@pytest.mark.parametrize("reply", [text("", 404), text("tökén"), text("a\nb")])
def test_a_token_that_is_none(reply: Reply) -> None:
    with metadata(lambda *_: reply) as service, listening("aws", service.port) as output:
        wait_until(lambda: output.troubles)
        asked_again(service)
    assert {method for method, _ in service.requests} == {"PUT"}


def test_slow_answer_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps any socket's own time-out from passing."""
    monkeypatch.setattr(asking, "_TIMEOUT_S", 0.3)
    drops = Reply(200, tuple(b"F" for _ in range(100)), {}, 0.1)
    with metadata(lambda *_: drops) as service, pytest.raises(InvalidResponse, match=r"to GET /x within 0\.3 s"):
        MetadataClient("127.0.0.1", service.port).ask("GET", "/x", {}, 0.3)


def test_closing_ends_a_question_under_way() -> None:
    request = threading.Event()

    def answer(method: str, path: str, headers: dict[str, str]) -> Reply:
        request.set()
        return Reply(200, (b"TRUE",), {}, 2 * HANGS_S)

    output = Recorder()
    with metadata(answer) as service:
        source = Source("azure", "127.0.0.1", service.port)
        notices = Notices(source, output.notices.append, output.troubles.append)
        assert request.wait(HANGS_S)
        notices.close()
        notices.close()
        notices._thread.join(HANGS_S)
        assert not notices._thread.is_alive()
    assert output.notices == output.troubles == []


def test_notice_listener_can_close() -> None:
    holder: list[Notices] = []
    there, messages = threading.Event(), []

    def hear(notice: PreemptionNotice) -> None:
        there.wait(HANGS_S)
        holder[0].close()
        messages.append(notice)

    with metadata(lambda *_: text("TRUE")) as service:
        holder.append(Notices(Source("gcp", "127.0.0.1", service.port), hear, messages.append, every_s=0.01))
        there.set()
        wait_until(lambda: messages and not holder[0]._thread.is_alive())
    assert len(messages) == 1


def test_missing_service_is_reported_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        with listening("gcp", taken.getsockname()[1]) as output:
            wait_until(lambda: output.troubles)
            time.sleep(0.1)
    assert len(output.troubles) == 1
    assert "refused" in output.troubles[0]


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with metadata(lambda *_: text("TRUE")) as service, listening("gcp", service.port) as output:
        wait_until(lambda: output.notices)
    assert output.troubles == []


@pytest.mark.parametrize(
    ("typed", "source"),
    [
        ("aws", Source("aws", "169.254.169.254", 80)),
        ("gcp=http://metadata.google.internal", Source("gcp", "metadata.google.internal", 80)),
        ("azure=http://127.0.0.1:8080/", Source("azure", "127.0.0.1", 8080)),
        ("aws=http://[fd00:ec2::254]", Source("aws", "fd00:ec2::254", 80)),
    ],
)
def test_sources(typed: str, source: Source) -> None:
    assert parse_source(typed) == source


@pytest.mark.parametrize(
    "typed",
    ["", "oracle", "aws=127.0.0.1:80", "aws=https://x", "aws=http://u:p@x", "gcp=http://x:65536", "gcp=http://x/path",
     "aws=http://x\nHost: y"],
)  # fmt: skip
def test_what_is_no_source(typed: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_source(typed)
    assert "\n" not in str(caught.value)
    assert "write it like" in str(caught.value)
