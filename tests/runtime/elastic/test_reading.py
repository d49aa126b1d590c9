"""Who answers a read: whoever asks, while the partition's thread has nothing to do, and that thread otherwise."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from plink.elastic import Table
from plink.model.consistency import BSP
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.arrays.row_blocks import RowBlock
from plink.runtime.elastic.partition.partition import Partition
from plink.runtime.elastic.replica.partition_replica import PartitionReplica
from plink.runtime.elastic.replica.snapshot import Role
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.messages import Message, Read, RowRequest, Status, Update
from tests.runtime.elastic.stores import HANGS_S, KEYS

LAYOUT = Layout((Table("a", 4, 2),), 1)
CONFIG = StoreConfig(LAYOUT, KEYS, BSP())
READ = Read(0, state=-1, wanted=(RowRequest(0, range(4)),))


@pytest.fixture
def primary() -> Iterator[PartitionReplica]:
    """Serves a partition of zeros that worker 0 works on."""
    result = PartitionReplica(CONFIG, 0, read_wait_s=HANGS_S, advanced=lambda replicas: None)
    partition = Partition(LAYOUT, 0)
    partition.admit({0: 0})
    result.call(lambda: result.place(partition, Role.SERVING, 0))
    yield result
    result.close()


def idle(primary: PartitionReplica) -> None:
    """Wait until its thread waits."""
    while not primary.thread.idle:
        time.sleep(0.001)


def ask_in_thread(primary: PartitionReplica, message: Message) -> tuple[threading.Thread, list[Message]]:
    """Somebody asks, and the answer once there is one."""
    answers: list[Message] = []
    thread = threading.Thread(target=lambda: answers.append(primary.ask(message)))
    thread.start()
    return thread, answers


def test_what_the_thread_does_is_done_before_it_is_read(primary: PartitionReplica) -> None:
    """Nobody sees half of a change."""
    begun, go_on = threading.Event(), threading.Event()

    def change() -> None:
        primary.partition.values[0][:2] = 1
        begun.set()
        assert go_on.wait(HANGS_S)
        primary.partition.values[0][2:] = 1

    changing = threading.Thread(target=lambda: primary.call(change))
    changing.start()
    assert begun.wait(HANGS_S)
    thread, answers = ask_in_thread(primary, READ)
    thread.join(0.2)
    assert not answers
    go_on.set()
    thread.join(HANGS_S)
    changing.join(HANGS_S)
    assert np.array_equal(answers[0].blocks[0].values, np.ones((4, 2)))


def test_while_somebody_reads_the_thread_changes_nothing(
    primary: PartitionReplica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read in the thread that asks is not of two states."""
    reading, go_on, changed = threading.Event(), threading.Event(), threading.Event()
    read = Partition.read

    def slow(self: Partition, *more: Any) -> Any:
        reading.set()
        assert go_on.wait(HANGS_S)
        return read(self, *more)

    monkeypatch.setattr(Partition, "read", slow)
    idle(primary)
    thread, answers = ask_in_thread(primary, READ)
    assert reading.wait(HANGS_S)
    changing = threading.Thread(target=lambda: primary.call(changed.set))
    changing.start()
    assert not changed.wait(0.2)
    go_on.set()
    thread.join(HANGS_S)
    changing.join(HANGS_S)
    assert changed.is_set()
    assert len(answers) == 1


def test_an_update_brings_the_rows_of_the_next_clock_once_all_have_come(primary: PartitionReplica) -> None:
    """It does not wait for others, and what it brings a read would; a repeat, too."""
    primary.call(lambda: primary.partition.admit({1: 0}))
    block = RowBlock(0, range(4), np.ones((4, 2), np.float32))
    update = Update(0, last=True, clock=0, state=0, blocks=(block,), wanted=READ.wanted)
    early = primary.ask(structs.replace(update, worker=0))
    assert (early.status, early.finished, early.blocks) == (Status.OK, True, ())
    late, again = (
        primary.ask(structs.replace(update, worker=1, blocks=())),
        primary.ask(structs.replace(update, worker=0)),
    )
    read = primary.ask(structs.replace(READ, clock=1, state=0))
    for answer in (late, again, read):
        assert (answer.status, answer.clock) == (Status.OK, 0)
        assert np.array_equal(answer.blocks[0].values, np.ones((4, 2)))
    assert late.finished


def test_a_state_that_is_not_there_yet_is_waited_for(primary: PartitionReplica) -> None:
    """By the thread, who learns of it."""
    idle(primary)
    thread, answers = ask_in_thread(primary, structs.replace(READ, clock=1, state=0))
    thread.join(0.2)
    assert not answers
    assert primary.ask(Update(0, worker=0, last=True)).status is Status.OK
    thread.join(HANGS_S)
    assert [answer.status for answer in answers] == [Status.OK]
