"""Links lead somewhere: files of the repository, and headings in them."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, anchors

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
_SOURCE = re.compile(r"`((?:plink|probes|solvers|runners|tests|examples|benchmarks|tools|docs)/[\w./-]*)`")
# Pages that other branches bring; each line goes when its page is here.


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
