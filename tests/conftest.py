"""Fixtures and the two tiers of tests: what ``make test`` runs, and what ``make test-all`` adds.

A test is of the *extended* tier if it starts real hosts or whole jobs: it lies in a folder named ``lab`` or ``live``,
or uses a lab or Slurm, or it is marked so because it takes long, or it is one of a family of random courses and not
among the first. All others are of the *quick* tier, and so is ``tests/end_to_end``, which has one path of each real
thing.
"""

import contextlib
import importlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.stale import forget_stale
from tests.reaper import take_down_lab

# Properties are not held against the clock: the machine that tests them may be busy. Where CI is set they are tried
# with the same examples every time, so that a change is judged by itself; elsewhere with new ones.
settings.register_profile(
    "plink", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.register_profile("quick", parent=settings.get_profile("plink"), max_examples=40)

if "PYTEST_XDIST_WORKER" not in os.environ:
    forget_stale()

# Whoever runs the tests may ignore these (nohup, a shell's `&`), and what they start would ignore them too.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL if _number == signal.SIGHUP else signal.default_int_handler)

TESTS = Path(__file__).parent
_PATH = os.environ["PATH"] + ":/usr/sbin"
_MISSING = [name for name in ("ip", "tc", "sshd") if shutil.which(name, path=_PATH) is None]
NO_LAB = "needs root" if os.geteuid() != 0 else f"needs {', '.join(_MISSING)}" if _MISSING else ""
_SLURM = ("munged", "slurmctld", "slurmd", "srun")
NO_SLURM = ", ".join(name for name in _SLURM if shutil.which(name, path=_PATH) is None)
_LAB_FIXTURES = {"lab", "small_lab"}
_EXTENDED_FOLDERS = {"lab", "live"}
_QUICK_SEEDS = 5  # of each test with a parameter `seed`


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--part``: what ``make test PART=...`` passes on."""
    parser.addoption(
        "--part", default="", help="run one part only, both tiers: a folder below tests/, such as ordering"
    )


def pytest_configure(config: pytest.Config) -> None:
    """A part that does not exist is an error in usage. The quick tier tries fewer examples of each property."""
    settings.load_profile("quick" if config.option.markexpr == "quick" else "plink")
    parts = sorted({path.name for path in TESTS.rglob("*/") if (path / "__init__.py").exists()} - _EXTENDED_FOLDERS)
    part = config.getoption("--part")
    if part and part not in {*parts, "lab"}:
        raise pytest.UsageError(f"--part {part}: choose one of {', '.join([*parts, 'lab'])}")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The quick tier does not import what it would leave out: folders of the extended tier."""
    return True if config.option.markexpr == "quick" and collection_path.name in _EXTENDED_FOLDERS else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Every second worker imports the test modules from the last to the first.

    All workers collect the same modules in one order, so each would compile each of them. This way they meet halfway
    and find the rest in the cache.
    """
    config = session.config
    if int(getattr(config, "workerinput", {}).get("workerid", "gw0").removeprefix("gw")) % 2:
        for path in sorted((p for folder in config.args for p in Path(folder).rglob("test_*.py")), reverse=True):
            path = path.resolve().relative_to(TESTS.parent)
            if not pytest_ignore_collect(path.parent, config):
                with contextlib.suppress(Exception):  # which collection reports
                    importlib.import_module(".".join(path.with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its tier, skip what this machine cannot run, leave out other parts."""
    part = config.getoption("--part")
    others = [item for item in items if part and part not in _folders(item)]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if part in _folders(item)]
    families: dict[object, list[object]] = {}
    for item in items:
        folders = _folders(item)
        in_lab = "lab" in item.keywords or bool(_LAB_FIXTURES & set(getattr(item, "fixturenames", ())))
        live = in_lab or "slurm" in item.keywords or bool(_EXTENDED_FOLDERS & folders)
        seeds = families.setdefault(getattr(item, "function", None), [])
        seed = item.callspec.params.get("seed") if hasattr(item, "callspec") else None
        if seed not in seeds:
            seeds.append(seed)
        extended = item.get_closest_marker("extended") or (live and "end_to_end" not in folders)
        extended = extended or seeds.index(seed) >= _QUICK_SEEDS
        if not item.get_closest_marker("quick"):  # by hand: one path of its kind, in a module that is extended
            item.add_marker("extended" if extended else "quick")
        if live:
            item.add_marker("alone")
        if in_lab and NO_LAB:
            item.add_marker(pytest.mark.skip(reason=NO_LAB))
        if "slurm" in item.keywords and NO_SLURM:
            item.add_marker(pytest.mark.skip(reason=f"needs {NO_SLURM}"))


def _folders(item: pytest.Item) -> set[str]:
    return set(item.path.relative_to(TESTS).parts[:-1]) if item.path.is_relative_to(TESTS) else set()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Note which test this process is in, for whoever ends a run that hangs (``.ci/run``)."""
    folder = os.environ.get("PLINK_TESTS_RUNNING")
    if folder:
        (Path(folder) / os.environ.get("PYTEST_XDIST_WORKER", "main")).write_text(nodeid + "\n")


def plink(*words: str, cwd: Path, timeout: float = 120, **more: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line as its user does, in a folder of its own, and give what it printed."""
    environment = {**os.environ, "NO_COLOR": "1", **more}
    done = subprocess.run(
        [sys.executable, "-m", "plink", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        check=False,
    )
    _check_schema(words, done.stdout)
    return done


def typed(*words: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The same without a process of its own, where starting one (and importing PyTorch) would take most of the time."""
    from plink.cli.entry import run

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape", write_through=True) for _ in range(2))
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    changes = pytest.MonkeyPatch()
    try:
        for name, value in {"NO_COLOR": "1", **environment}.items():
            changes.setenv(name, value)
        changes.chdir(cwd)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run(list(words))
    finally:
        changes.undo()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    printed = [stream.buffer.getvalue().decode("utf-8", "surrogateescape") for stream in (out, err)]  # type: ignore[attr-defined]
    _check_schema(words, printed[0])
    return subprocess.CompletedProcess(["plink", *words], code, *printed)


def _check_schema(words: tuple[str, ...], stdout: str) -> None:
    """A document that a command prints keeps to its published schema, which speaks of all its keys."""
    if "--json" in words and stdout.startswith("{"):
        from tests.model.schemas import complaints, described

        document, _ = json.JSONDecoder().raw_decode(stdout)
        kind = re.fullmatch(r"plink\.([a-z-]+)/\d+", document.get("schema", ""))
        assert kind, f"{words}: the document does not name its schema"
        assert described(kind[1], document), f"{words}: {complaints(kind[1], document)}"


class Lab:
    """A lab that is up: its name, its hosts file, the truth about it."""

    def __init__(self, name: str) -> None:
        from runners.lab.state import LabState

        self.name = name
        self.state = LabState(name)
        self.blueprint = self.state.blueprint()
        self.hosts = self.blueprint.hosts()
        self.racks = {place.name: place.rack for place in self.blueprint.places}
        self.hosts_file = self.state.hosts_file

    def plink(self, command: str, *words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
        """``plink lab COMMAND --name NAME WORDS``."""
        return plink("lab", command, "--name", self.name, *words, cwd=cwd)


def lab_up(name: str, *words: str) -> Lab:
    """Bring a lab up by the command line; it does not outlive this process."""
    take_down_lab(name)
    done = plink("lab", "up", "--name", name, *words, cwd=Path("/"))
    assert done.returncode == 0, done.stderr
    return Lab(name)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Four racks of four hosts at 200 Mbit/s; tests that break it must heal it."""
    name = f"t{os.getpid()}"
    yield lab_up(name, "--seed", "7")
    plink("lab", "down", "--name", name, cwd=Path("/"))


@pytest.fixture(scope="session")
def small_lab() -> Iterator[Lab]:
    """Two racks of two hosts, for tests that need hosts and no crowd; tests that break it must heal it."""
    name = f"s{os.getpid()}"
    yield lab_up(name, "--racks", "2", "--hosts-per-rack", "2", "--seed", "3")
    plink("lab", "down", "--name", name, cwd=Path("/"))
