"""Who waits for a function to be compiled is told so on a terminal, once."""

import io

import pytest

from plink.terminal import screen
from plink.terminal.compilation_notice import compilation_notice
from solvers.compilation import njit

_NOTICE = "plink: compiling, once on this machine\n"


class Terminal(io.StringIO):
    """Standard error as a terminal."""

    def isatty(self) -> bool:
        return True


def _printed(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, is_json: bool = False) -> str:
    """Return what is printed while two functions are compiled, one of which calls a third."""
    inner = njit()(lambda x: x + 1)
    outer, other = njit()(lambda x: inner(x) * 2), njit()(lambda x: x - 1)
    monkeypatch.setattr("sys.stderr", stderr)
    with compilation_notice(is_json, delay_s=0.0):
        assert (outer(1), other(1)) == (4, 0)
    return stderr.getvalue()


def test_notice_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _printed(monkeypatch, Terminal()) == _NOTICE


def test_no_notice_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _printed(monkeypatch, io.StringIO()) == ""


def test_no_notice_for_json_or_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _printed(monkeypatch, Terminal(), is_json=True) == ""
    monkeypatch.setattr(screen, "quiet", True)
    assert _printed(monkeypatch, Terminal()) == ""


def test_no_notice_for_compiled_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor for compilations that end before the delay."""
    function, stderr = njit()(lambda x: x + 1), Terminal()
    function(1)
    monkeypatch.setattr("sys.stderr", stderr)
    with compilation_notice(is_json=False, delay_s=0.0):
        function(1)
    with compilation_notice(is_json=False, delay_s=3600.0):
        njit()(lambda x: x + 2)(1)
    assert stderr.getvalue() == ""
