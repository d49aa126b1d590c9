"""The controller's process as its supervisor sees it: one that stands still holds up nobody, and is found out."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runners.elastic import controller
from runners.elastic.controller import ControllerProcess

HANGS_S = 300  # whatever the machine does meanwhile
WORD = {"type": "alive", "because": "x" * 1000}


@pytest.fixture
def gone() -> threading.Event:
    return threading.Event()


@pytest.fixture
def frozen(tmp_path: Path, gone: threading.Event) -> Iterator[ControllerProcess]:
    """One that stands still, after it has spoken."""
    controller = ControllerProcess(lambda message: gone.set() if message is None else None, tmp_path / "errors")
    deadline = time.monotonic() + HANGS_S
    while not controller._has_started and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(controller.pid, signal.SIGSTOP)
    yield controller
    controller.kill()
    assert gone.wait(HANGS_S)
    controller._writer.join(HANGS_S)
    assert not controller._writer.is_alive()  # with nobody to close it


def in_time(does: Any, *arguments: Any) -> None:
    """Somebody who did wait for ever would not be ended with the test."""
    thread = threading.Thread(target=does, args=arguments, daemon=True)
    thread.start()
    thread.join(HANGS_S)
    assert not thread.is_alive()


def test_sending_to_a_stopped_controller_fails(frozen: ControllerProcess, gone: threading.Event) -> None:
    """However much it is told: a pipe takes 64 KB."""

    def tell() -> None:
        for _ in range(1000):
            frozen.tell(WORD)
        while not frozen.silent:
            time.sleep(0.05)
        frozen.kill()

    in_time(tell)
    assert gone.wait(HANGS_S)
    in_time(frozen.close)


def test_stopped_controller_is_closed_with_messages_queued(
    frozen: ControllerProcess, gone: threading.Event
) -> None:  # fmt: skip
    in_time(lambda: [frozen.tell(WORD) for _ in range(1000)])
    in_time(frozen.close)
    assert gone.wait(HANGS_S)


def test_one_that_is_too_far_behind_is_ended(
    frozen: ControllerProcess, gone: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Rather than to keep all that it never hears."""
    monkeypatch.setattr(controller, "_MAX_QUEUED_MESSAGES", 500)
    in_time(lambda: [frozen.tell(WORD) for _ in range(1000)])
    assert gone.wait(HANGS_S)
    assert frozen._waiting.qsize() <= 501  # these, and the end
