"""``make links``: which links of pages and docstrings are requested, and what counts as an answer; on loopback only."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tools import links
from tools.links import Link


class Site(BaseHTTPRequestHandler):
    """Answers selected by the first word of a path."""

    requests: list[str]
    over: threading.Event

    def do_HEAD(self) -> None:
        """Answer as GET does."""
        self.do_GET()

    def do_GET(self) -> None:
        """Send an answer without a body."""
        type(self).requests.append(f"{self.command} {self.path}")
        what = self.path.strip("/").partition("?")[0]
        if what == "drips":
            while not self.over.wait(0.1):
                self.wfile.write(b"HTTP/1.1 200 OK\r\n" if not hasattr(self, "begun") else b"X: y\r\n")
                self.begun = True
            return
        code = {"good": 200, "moved": 301, "round": 302}.get(what, 404)
        self.send_response(code)
        if code in (301, 302):
            self.send_header("Location", "/good" if what == "moved" else "/round")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of a running site."""
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    Site.requests, Site.over = [], threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        Site.over.set()
        server.shutdown()
        serving.join()


def test_redirections_are_followed_but_not_loops(site: str) -> None:
    assert links.link_error(f"{site}/moved") is None
    assert Site.requests[0] == "HEAD /moved"
    assert Site.requests[-1].endswith("/good")
    assert "redirect" in str(links.link_error(f"{site}/round"))


def test_one_deadline_for_all_links(site: str) -> None:
    began = time.monotonic()
    external = [Link("a.md:1", "", f"{site}/drips"), Link("a.md:2", "", f"{site}/good")]
    assert links.broken_links(external, all_s=1.0) == [f"a.md:1: {site}/drips: no answer within 1 s"]
    assert time.monotonic() - began < 10


def test_links_of_pages_and_docstrings(tmp_path: Path) -> None:
    page, source = tmp_path / "page.md", tmp_path / "source.py"
    page.write_text(
        'See [it](https://a.org/x "title"), [there](other.md) and <https://b.org>.\n\n'
        "`[not](https://code.org)`\n\n```\n[nor](https://block.org)\n```\n[with\nbreak](https://c.org/p q)\n"
    )
    source.write_text('"""One.\n\nSee (https://d.org/x), `https://e.org`.\n"""\nX = "https://code.org"\n')
    assert list(links.in_page(page)) == [
        Link(f"{page}:1", "it", "https://a.org/x"),
        Link(f"{page}:1", "", "https://b.org"),
        Link(f"{page}:8", "with\nbreak", "https://c.org/p q"),
    ]
    assert [link.url for link in links.in_source(source)] == ["https://d.org/x", "https://e.org"]


def test_exit_code_of_wrong_links(
    site: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for what, code in (("good", 0), ("gone", 1)):
        monkeypatch.setattr(links, "of_the_repository", lambda what=what: [Link("a.md:3", "", f"{site}/{what}")])
        assert links.main() == code
    printed = capsys.readouterr()
    assert printed.out == f"a.md:3: {site}/gone: 404 Not Found\n"
    assert "1 external links, 1 of them lead nowhere" in printed.err
