"""The wheel and the source distribution: both hold what they must, and plink runs from the wheel alone.

Installing all dependencies anew takes minutes and a network. So the wheel is installed by itself into an environment
that has nothing, and a .pth file there adds the folder of the libraries that these tests run with. Such a folder comes
after the environment's own, and no .pth file in it counts: the checkout that may be installed there is not found.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import plink

ROOT = Path(__file__).parents[2]
PACKAGES = ("plink", "probes", "solvers", "runners")
# What git ignores, or what is of no use to anybody who builds.
LEFT_OUT = (".git", ".venv", "__pycache__", ".plink", "build", "dist", "*.egg-info", ".*_cache", ".hypothesis")
BUILD_S = 240
EPOCH = "1700000000"

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("build") is None, reason="needs `build`, of the extra `dev`"),
]


def build(source: Path, out: Path, *, umask: int = -1) -> None:
    """As ``make dist``."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": EPOCH, "PYTHONPATH": str(source)}
    subprocess.run(
        [sys.executable, "-m", "tools.dist", "--out", str(out)],
        cwd=source, env=environment, umask=umask, check=True, timeout=BUILD_S, capture_output=True,
    )  # fmt: skip


def copy(source: Path) -> None:
    """Copy this tree, without what git ignores."""
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*LEFT_OUT))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, made from a copy of this tree that has litter in it."""
    tmp = tmp_path_factory.mktemp("dist")
    source = tmp / "source"
    copy(source)
    for litter in (
        ".plink/network.json",
        "plink/cli/.plink/order.json",
        "tests/.plink/x.json",
        "plink/__pycache__/a.pyc",
    ):
        (source / litter).parent.mkdir(parents=True, exist_ok=True)
        (source / litter).write_text("{}")
    build(source, tmp / "dist")
    return tmp / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (archive,) = built.glob("*.whl")
    return archive


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    (archive,) = built.glob("*.tar.gz")
    return archive


def in_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def in_sdist(sdist: Path) -> set[str]:
    with tarfile.open(sdist) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def sources() -> set[str]:
    """Every module of the four packages, as the tree has them."""
    return {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def test_same_sources_make_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """In another folder, at another time, under another umask, with files of other times and modes."""
    source = tmp_path / "elsewhere" / "plink"
    copy(source)
    for path in source.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(path.stat().st_mode & 0o700)
    build(source, tmp_path / "dist", umask=0o077)
    for path in built.iterdir():
        assert (tmp_path / "dist" / path.name).read_bytes() == path.read_bytes(), path.name


def test_the_wheel_has_the_packages_and_nothing_else(wheel: Path) -> None:
    names = {name for name in in_wheel(wheel) if ".dist-info/" not in name}
    assert names == sources() | {
        *(f"{package}/py.typed" for package in ("plink", "probes", "runners", "solvers")),
        "plink/__init__.pyi",
        "plink/elastic/__init__.pyi",
        "plink/features/report/page.css",
        "plink/features/report/page.js",
    }


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    files = {name.partition(".dist-info/")[2]: data.decode() for name, data in in_wheel(wheel).items() if "/METADATA" in
             name or "/entry_points.txt" in name or "/WHEEL" in name or "/LICENSE" in name}  # fmt: skip
    metadata = Parser().parsestr(files["METADATA"])
    assert metadata["Name"] == "plink-collectives"
    assert metadata["Version"] == plink.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    needed = metadata.get_all("Requires-Dist", [])
    assert any(requirement.startswith("torch>=") for requirement in needed)
    assert all(
        "extra ==" in requirement for requirement in needed if requirement.startswith(("pytest", "mypy", "build"))
    )
    assert files["licenses/LICENSE"] == (ROOT / "LICENSE").read_text()
    assert "plink = plink.__main__:main" in files["entry_points.txt"]
    assert "plink = plink.runtime.torch_backend:autoload" in files["entry_points.txt"]
    assert "Tag: py3-none-any" in files["WHEEL"]


def test_the_source_distribution_has_what_make_test_needs(sdist: Path) -> None:
    there = in_sdist(sdist)
    named = {
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "SECURITY.md",
        "Makefile",
        "constraints.txt",
        "pyproject.toml",
        "requirements.lock",
    }
    assert sources() | named <= there
    for folder, kind in (("tests", "*.py"), ("examples", "*.py"), ("benchmarks", "*"), ("docs", "*"), ("tools", "*")):
        listed = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob(kind) if path.is_file()}
        listed = {name for name in listed if "__pycache__" not in name and ".plink/" not in name}
        assert listed <= there, sorted(listed - there)[:5]


def test_neither_has_what_lies_about(wheel: Path, sdist: Path) -> None:
    for name in [*in_wheel(wheel), *in_sdist(sdist)]:
        assert "__pycache__" not in name, name
        assert ".plink" not in name, name
        assert not name.endswith((".pyc", ".json.gz", ".tmp")), name


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of an environment that has the wheel; see the module for where its libraries come from."""
    environment = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index",
         "--disable-pip-version-check", str(wheel)],
        check=True, timeout=120, env=bare(),
    )  # fmt: skip
    (site,) = environment.glob("lib/python3*/site-packages")
    (site / "libraries.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return environment / "bin"


def bare() -> dict[str, str]:
    """The environment without what leads to this checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")} | {
        "NO_COLOR": "1"
    }


def run(program: Path, *words: str, cwd: Path, timeout: float = 60) -> str:
    done = subprocess.run(
        [str(program), *words], cwd=cwd, env=bare(), capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plink_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = "import plink, probes, solvers, runners; print(*(m.__file__ for m in (plink, probes, solvers, runners)))"
    files = run(installed / "python", "-c", where, cwd=tmp_path).split()
    assert len(files) == 4
    assert all(Path(file).is_relative_to(installed.parent) for file in files), files
    assert run(installed / "plink", "--version", cwd=tmp_path) == f"plink {plink.__version__}\n"
    assert run(installed / "python", "-m", "plink", "--version", cwd=tmp_path) == f"plink {plink.__version__}\n"
    info = json.loads(run(installed / "plink", "info", "--json", cwd=tmp_path))
    assert info["plink"] == plink.__version__  # no commit, for it is no checkout
    assert info["entry_points"]["torch.backends"] == "plink.runtime.torch_backend:autoload"
    schedule = json.loads(
        run(installed / "plink", "schedule", "--algo", "ring", "--ranks", "4", "--json", cwd=tmp_path)
    )
    assert (schedule["schema"], schedule["ranks"]) == ("plink.schedule/1", 4)


def test_a_job_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    """Agents are sent as source, so their sources are among what was installed; PyTorch finds the backend."""
    (tmp_path / "job.py").write_text(
        "import torch, torch.distributed as dist, plink\n"
        "dist.init_process_group('plink')\n"
        "mine = torch.full((1000,), float(dist.get_rank() + 1))\n"
        "dist.all_reduce(mine)\n"
        "print('sum', mine[0].item(), plink.__file__)\n"
        "dist.destroy_process_group()\n"
    )
    done = run(installed / "plink", "launch", "--runner", "local", "--slots", "2", "--backend", "ring", "job.py",
               cwd=tmp_path, timeout=120)  # fmt: skip
    assert done.count("sum 3.0") == 2
    assert done.count(str(installed.parent)) == 2


@pytest.mark.lab
def test_the_demo_runs_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = run(installed / "plink", "demo", "--racks", "2", "--hosts-per-rack", "2", "--size", "1MB", "--seed", "3",
               "--json", cwd=tmp_path, timeout=300)  # fmt: skip
    document = json.loads(done)
    assert document["schema"] == "plink.demo/1"
