"""Preemption notices: a host asks its provider's metadata service every few seconds whether it will be taken away.

AWS: instance metadata, version 2 (a token, then ``spot/instance-action``); Amazon EC2 User Guide, "Spot Instance
interruption notices". GCP: ``instance/preempted``; Compute Engine documentation, "Create and use Spot VMs". Azure:
"Scheduled Events for Linux VMs". They are asked directly (nothing a proxy could answer), and nothing they answer leads
anywhere else: redirects are not followed.
"""

import contextlib
import email.utils
import json
import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.client import HTTPConnection, HTTPException
from typing import Any

from plink.errors import UsageError

_TIMEOUT_S = 2.0  # for a connection, and for an answer unless given
_AZURE_HEADERS = {"Metadata": "true"}
_MAX_RESPONSE_BYTES = 1 << 18  # bytes of an answer
_AWS_MAX_NOTICE_S, _GCP_MAX_NOTICE_S, _AZURE_MAX_NOTICE_S = 120.0, 30.0, 900.0
_TOKEN_TTL_S = "21600"  # six hours, the longest there is
_AZURE_FIRST_TIMEOUT_S = 120.0  # "expect a delayed response in your first call of up to two minutes"


@dataclass(frozen=True)
class PreemptionNotice:
    """Notice that this host will be taken away in ``seconds``, never negative; ``reason``: its source, for the log."""

    seconds: float
    reason: str


@dataclass(frozen=True)
class MetadataResponse:
    """Response of a metadata service. ``at``: when it was given by the clock of the service, else by ours, seconds
    since 1970."""

    status: int
    text: str
    at: float


class InvalidResponse(Exception):
    """A service that cannot be reached, or whose response is invalid; one line."""


class MetadataClient:
    """HTTP client of one endpoint, one request at a time. :meth:`close`, from any thread, ends the request under
    way."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._socket: socket.socket | None = None
        self._closed = False
        self._guard = threading.Lock()

    def ask(self, method: str, path: str, headers: dict[str, str], within_s: float = _TIMEOUT_S) -> MetadataResponse:
        """Send one request and return the response.

        :raises InvalidResponse: when there is no answer within the time, or none that HTTP knows.
        """
        connection = HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        over = threading.Event()
        watch: threading.Timer | None = None
        try:
            connection.connect()
            with self._guard:
                if self._closed:
                    raise InvalidResponse("closed")
                self._socket = connection.sock
            connection.sock.settimeout(within_s)
            watch = threading.Timer(within_s, _give_up, [connection.sock, over])
            watch.daemon = True
            watch.start()  # a socket's own time-out begins anew with each byte
            connection.request(method, path, headers={"Connection": "close", **headers})
            response = connection.getresponse()
            body = response.read(_MAX_RESPONSE_BYTES + 1)
            if over.is_set():
                raise InvalidResponse(f"no answer to {method} {path} within {within_s:g} s")
            if len(body) > _MAX_RESPONSE_BYTES:
                raise InvalidResponse(f"the answer to {method} {path} is longer than {_MAX_RESPONSE_BYTES:,} bytes")
            return MetadataResponse(
                response.status, body.decode("utf-8", "replace"), _clock(response.getheader("Date"))
            )
        except (OSError, HTTPException, ValueError) as error:  # ValueError: a header that cannot be sent
            if over.is_set() or isinstance(error, TimeoutError):
                raise InvalidResponse(f"no answer to {method} {path} within {within_s:g} s") from None
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise InvalidResponse(f"no answer to {method} {path}: {reason[:100]}") from None
        finally:
            if watch is not None:
                watch.cancel()
            with self._guard:
                self._socket = None
            connection.close()

    def close(self) -> None:
        """Send no more requests."""
        with self._guard:
            self._closed = True
            if self._socket is not None:
                _give_up(self._socket, threading.Event())


def _give_up(sock: socket.socket, over: threading.Event) -> None:
    over.set()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


class Aws:
    """AWS: a spot instance has two minutes, and none where it hibernates: that begins with the notice.

    ``events/recommendations/rebalance`` is a hint, not an eviction, and is not asked for.
    """

    _TOKEN, _ACTION = "/latest/api/token", "/latest/meta-data/spot/instance-action"

    def __init__(self) -> None:
        self._token: str | None = None

    def ask(self, client: MetadataClient) -> dict[str, PreemptionNotice]:
        """Return the evictions that are announced, by an identifier; an expired token is renewed.

        :raises InvalidResponse: when that cannot be known.
        """
        answer = self._answer(client)
        if answer.status == 401:
            self._token = None
            answer = self._answer(client)
        if answer.status == 404:
            return {}
        document = _document(answer, self._ACTION)
        action = document.get("action")
        if action not in ("terminate", "stop", "hibernate"):
            raise InvalidResponse(f"{self._ACTION}: {str(action)[:40]!r} is no action")
        seconds = 0.0 if action == "hibernate" else _until(document.get("time"), answer.at, _AWS_MAX_NOTICE_S)
        return {str(document.get("time")): PreemptionNotice(seconds, f"aws: {action}")}

    def _answer(self, client: MetadataClient) -> MetadataResponse:
        if self._token is None:
            messages = client.ask(
                "PUT", self._TOKEN, {"X-aws-ec2-metadata-token-ttl-seconds": _TOKEN_TTL_S, "Content-Length": "0"}
            )
            token = messages.text.strip()
            if messages.status != 200 or not token or not token.isascii() or not token.isprintable():
                raise InvalidResponse(f"{self._TOKEN}: status {messages.status} and no token")
            self._token = token
        return client.ask("GET", self._ACTION, {"X-aws-ec2-metadata-token": self._token})


class Gcp:
    """Google Cloud: thirty seconds from when ``preempted`` turns; the rest of them is counted from the last response
    without it."""

    _PATH = "/computeMetadata/v1/instance/preempted"

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._not_yet: float | None = None

    def ask(self, client: MetadataClient) -> dict[str, PreemptionNotice]:
        """Ask as :meth:`Aws.ask`."""
        before = self._clock()
        answer = client.ask("GET", self._PATH, {"Metadata-Flavor": "Google"})
        text = answer.text.strip()
        if answer.status != 200 or text not in ("TRUE", "FALSE"):
            raise InvalidResponse(f"{self._PATH}: status {answer.status} and {text[:40]!r}, neither TRUE nor FALSE")
        if text == "FALSE":
            self._not_yet = before
            return {}
        since = 0.0 if self._not_yet is None else self._clock() - self._not_yet
        return {"preempted": PreemptionNotice(max(0.0, _GCP_MAX_NOTICE_S - since), "gcp: preempted")}


class Azure:
    """Azure: ``Preempt`` (a spot machine, thirty seconds) and ``Terminate`` (of a scale set, some minutes) of this very
    machine: a set's machines see each other's events. Reboots and the like come back, and are no evictions."""

    _NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
    _EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"

    def __init__(self) -> None:
        self._name: str | None = None
        self._first = True

    def ask(self, client: MetadataClient) -> dict[str, PreemptionNotice]:
        """Ask as :meth:`Aws.ask`; the first request switches the service on, which takes it a while."""
        if self._name is None:
            messages = client.ask("GET", self._NAME, _AZURE_HEADERS)
            if messages.status != 200 or not messages.text.strip():
                raise InvalidResponse(f"{self._NAME}: status {messages.status} and no name")
            self._name = messages.text.strip().casefold()
        answer = client.ask("GET", self._EVENTS, _AZURE_HEADERS, _AZURE_FIRST_TIMEOUT_S if self._first else _TIMEOUT_S)
        events = _document(answer, self._EVENTS).get("Events")
        if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
            raise InvalidResponse(f"{self._EVENTS}: no list of events")
        self._first = False
        return {str(event.get("EventId")): self._notice(event, answer.at) for event in events if self._is_ours(event)}

    def _is_ours(self, event: dict[str, Any]) -> bool:
        named = event.get("Resources")
        return (
            event.get("EventType") in ("Preempt", "Terminate")
            and event.get("EventStatus") in ("Scheduled", "Started")
            and isinstance(named, list)
            and self._name in {str(name).casefold() for name in named}
        )

    def _notice(self, event: dict[str, Any], at: float) -> PreemptionNotice:
        started = event["EventStatus"] == "Started"
        return PreemptionNotice(
            0.0 if started else _until(event.get("NotBefore"), at, _AZURE_MAX_NOTICE_S), f"azure: {event['EventType']}"
        )


def _document(answer: MetadataResponse, path: str) -> dict[str, Any]:
    if answer.status != 200:
        raise InvalidResponse(f"{path}: status {answer.status}")
    try:
        document = json.loads(answer.text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise InvalidResponse(f"{path}: {answer.text[:40]!r} is no JSON object")
    return document


def _clock(date: str | None) -> float:
    """Return the response's own clock where it has one: announcements are by that clock, and ours may be wrong."""
    return time.time() if (messages := _instant(date)) is None else messages


def _until(when: object, at: float, most: float) -> float:
    """Return the seconds from ``at`` to a time in the response, 0 to ``most``; 0 for an invalid one: better early than
    late."""
    then = _instant(when)
    return 0.0 if then is None else min(max(0.0, then - at), most)


def _instant(text: object) -> float | None:
    """Parse ``2017-09-18T08:22:00Z`` (with or without the Z, always UTC) or ``Mon, 19 Sep 2016 18:29:47 GMT``."""
    if not isinstance(text, str):
        return None
    for read in (datetime.fromisoformat, email.utils.parsedate_to_datetime):
        with contextlib.suppress(ValueError, OverflowError):
            result = read(text)
            return (result if result.tzinfo else result.replace(tzinfo=UTC)).timestamp()
    return None


__all__ = ["Notices", "PreemptionNotice", "Source", "parse_source"]

# How often each is asked: AWS recommends every 5 seconds, Azure every second, and of GCP's 30 seconds few may be lost.
_PROVIDERS: dict[str, tuple[type[Aws] | type[Gcp] | type[Azure], float]] = {
    "aws": (Aws, 5.0),
    "gcp": (Gcp, 1.0),
    "azure": (Azure, 1.0),
}
_ENDPOINT = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::(\d{1,5}))?/?")
_DEFAULT_ENDPOINT = "http://169.254.169.254"  # the same address with all three
_JOIN_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Source:
    """Metadata service to poll. ``provider``: aws, gcp or azure; ``host`` and ``port``: of the service."""

    provider: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.provider} at {self.host}:{self.port}"


def parse_source(text: str) -> Source:
    """Parse ``aws``, ``gcp`` or ``azure``, or one of them elsewhere: ``aws=http://127.0.0.1:8080``.

    :raises UsageError: for anything else.
    """
    provider, equals, endpoint = text.partition("=")
    if provider not in _PROVIDERS:
        raise UsageError(f"{text!r}: notices come from {', '.join(_PROVIDERS)}; write it like aws")
    result = _ENDPOINT.fullmatch(endpoint if equals else _DEFAULT_ENDPOINT)
    port = int(result[2] or 80) if result else 0
    if result is None or not 0 < port < 65536:
        raise UsageError(
            f"{text!r}: {endpoint!r} is no http://HOST:PORT; write it like {provider}=http://127.0.0.1:8080"
        )
    return Source(provider, result[1].strip("[]"), port)


class Notices:
    """Poller of a metadata service, in a thread of its own. ``on_notice`` is called once for each eviction;
    ``on_trouble``, with one line, for a service that cannot be reached or is invalid: once, and again only after it was
    valid in between. Both are called from that thread, and not after :meth:`close` has returned."""

    def __init__(
        self,
        source: Source,
        on_notice: Callable[[PreemptionNotice], None],
        on_trouble: Callable[[str], None],
        every_s: float | None = None,
    ) -> None:
        """:param every_s: seconds between two questions; None: what suits the provider."""
        make, usual_s = _PROVIDERS[source.provider]
        self._source, self._on_notice, self._on_trouble = source, on_notice, on_trouble
        self._every_s = usual_s if every_s is None else every_s
        self._client = MetadataClient(source.host, source.port)
        self._closed = threading.Event()
        self._callback_lock = threading.RLock()  # a callback may close
        self._reported: set[str] = set()
        self._in_trouble = False
        self._thread = threading.Thread(target=self._run, args=[make()], daemon=True, name="plink-notices")
        self._thread.start()

    def close(self) -> None:
        """Ask no more; a question under way is given up."""
        with self._callback_lock:
            self._closed.set()
        self._client.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_TIMEOUT_S)

    def _run(self, service: Aws | Gcp | Azure) -> None:
        while not self._closed.is_set():
            self._ask(service)
            self._closed.wait(self._every_s)

    def _ask(self, service: Aws | Gcp | Azure) -> None:
        try:
            standing = service.ask(self._client)
        except InvalidResponse as error:
            if not self._in_trouble:
                self._in_trouble = True
                self._call_back(partial(self._on_trouble, f"no notices from {self._source} for now: {error}"))
            return
        self._in_trouble = False
        for key, notice in standing.items():
            if key not in self._reported:
                self._reported.add(key)
                self._call_back(partial(self._on_notice, notice))

    def _call_back(self, hear: Callable[[], None]) -> None:
        with self._callback_lock:
            if not self._closed.is_set():
                hear()
