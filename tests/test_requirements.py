"""What `make setup` installs is pinned, with hashes: all that plink and its development need, and the build tools."""

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
# Which build is right depends on the machine and its index.
WITHOUT_HASHES = {"torch"}


def constraints() -> dict[str, str]:
    """Versions, by name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in lines if not line.startswith("#"))
    }


def locked() -> dict[str, tuple[str, int]]:
    """Versions and numbers of hashes, by name."""
    text = re.sub(r"#.*|\\\n", "", (ROOT / "requirements.lock").read_text())
    hashes_by_name = {}
    for line in filter(str.strip, text.splitlines()):
        wanted, *hashes = line.split(" --hash=")
        requirement = Requirement(wanted)
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", item.strip()) for item in hashes), line
        hashes_by_name[canonicalize_name(requirement.name)] = (
            str(requirement.specifier).removeprefix("=="),
            len(hashes),
        )
    return hashes_by_name


def test_every_pinned_version_has_hashes() -> None:
    lock = locked()
    assert {name: version for name, (version, _) in lock.items()} == {
        name: version for name, version in constraints().items() if name not in WITHOUT_HASHES
    }
    assert all(count for _, count in lock.values())


def test_everything_that_is_needed_is_pinned() -> None:
    """With what that needs; not what PyTorch brings for the machine's accelerator."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [Requirement(line) for line in (*project["dependencies"], *project["optional-dependencies"]["dev"])]
    needed: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in needed or not (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            continue
        needed.add(name)
        if name not in WITHOUT_HASHES:
            waiting += map(Requirement, distribution(name).requires or ())
    assert needed <= constraints().keys()


def test_build_tools_are_pinned() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for requirement in map(Requirement, build):
        assert str(requirement.specifier) == f"=={constraints()[canonicalize_name(requirement.name)]}"
