"""Every format that plink writes is described, and every schema is named."""

import re

from tests.docs.pages import ROOT

_PAGE = (ROOT / "docs" / "formats.md").read_text()


def test_every_format_is_described() -> None:
    written = {
        name
        for package in ("plink", "probes", "runners", "solvers")
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r'"plink\.([a-z-]+)/1"', path.read_text())
    }
    described = set(re.findall(r"^## .*?$", _PAGE, re.MULTILINE))
    assert len(written) > 20
    assert {name for name in written if not any(f"plink.{name}/1" in heading for heading in described)} == set()


def test_every_schema_is_named() -> None:
    for path in (ROOT / "docs" / "schemas").iterdir():
        assert f"(schemas/{path.name})" in _PAGE, path.name
