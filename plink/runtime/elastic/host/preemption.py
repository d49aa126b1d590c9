"""How a host gets to know that it will be taken away: its provider's metadata service, asked every few seconds."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from plink.errors import UsageError
from plink.runtime.elastic.host.metadata_services import (
    Aws,
    Azure,
    Gcp,
    InvalidResponse,
    MetadataClient,
    PreemptionNotice,
    Service,
)

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

    def _run(self, service: Service) -> None:
        while not self._closed.is_set():
            self._ask(service)
            self._closed.wait(self._every_s)

    def _ask(self, service: Service) -> None:
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
