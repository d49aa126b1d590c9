"""Links lead somewhere: files of the repository, and headings in them.

Whether external ones do is for ``make links``, which needs the internet; here only whether they are such that they
could.
"""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import PAGES, ROOT, anchors
from tools.links import Link, of_the_repository

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
_SOURCE = re.compile(r"`((?:plink|probes|solvers|runners|tests|examples|benchmarks|tools|docs)/[\w./-]*)`")
_HOST = re.compile(r"(?!.*\bexample\b)[a-z0-9-]+(\.[a-z0-9-]+)+")
_RFC = re.compile(r"\brfc[ _-]?(\d+)", re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert file.is_relative_to(ROOT), f"{page.name}: {target} leads out of the repository"
        if heading:
            assert heading in anchors(file), f"{page.name}: {target}: there are {sorted(anchors(file))}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_named_in_sentences_exist(page: Path) -> None:
    """Paths from the root of the repository in code font, as `solvers/schedules/ring.py`."""
    if page.name == "CHANGELOG.md":  # it speaks of what there was
        return
    for path in _SOURCE.findall(page.read_text()):
        assert (ROOT / path).exists(), f"{page.name}: {path}"


def mistake(link: Link) -> str | None:
    """Return what is wrong with an external link's address; an RFC has one address."""
    parts = urlsplit(link.url)
    if parts.scheme != "https":
        return "https only"
    if not _HOST.fullmatch(parts.netloc) or not re.fullmatch(r"[\w/#%&+,.:;=?@~-]+", link.url):
        return "no address of a page"
    named = {*_RFC.findall(link.text), *_RFC.findall(link.url)}
    if named and (
        len(named) > 1 or parts._replace(fragment="").geturl() != f"https://www.rfc-editor.org/rfc/rfc{min(named)}"
    ):
        return "RFCs are linked as https://www.rfc-editor.org/rfc/rfcNUMBER"
    return None


def test_external_links_have_addresses_of_pages() -> None:
    links = of_the_repository()
    assert links
    assert {f"{link.location} {link.url}": error for link in links if (error := mistake(link))} == {}


@pytest.mark.parametrize(("text", "url", "good"), [
    ("py-spy", "https://github.com/benfred/py-spy", True),
    ("py-spy", "http://github.com/benfred/py-spy", False),
    ("it", "https://github.com/OWNER/<repository>", False),
    ("it", "https://github.com/two words", False),
    ("it", "https://host/page", False),
    ("it", "https://HOST/page", False),
    ("it", "https://example.com/page", False),
    ("it", "https://", False),
    ("RFC 8762", "https://www.rfc-editor.org/rfc/rfc8762", True),
    ("RFC 8762", "https://www.rfc-editor.org/rfc/rfc8762#section-4.2", True),
    ("RFC 8762", "https://www.rfc-editor.org/rfc/rfc8972", False),
    ("RFC 8762", "https://datatracker.ietf.org/doc/html/rfc8762", False),
    ("STAMP", "https://www.rfc-editor.org/rfc/rfc8762.html", False),
])  # fmt: skip
def test_what_is_no_external_link(text: str, url: str, good: bool) -> None:
    assert (mistake(Link("a.md:1", text, url)) is None) is good
