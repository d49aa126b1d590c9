"""Servers and clients where something is wrong: mistakes, strangers, garbage, servers that are gone."""

import contextlib
import socket
import threading

import numpy as np
import pytest

from plink.elastic import Table
from plink.errors import InputError, PlinkError
from plink.model.consistency import BSP
from plink.runtime.elastic.arrays.layout import Layout
from plink.runtime.elastic.partition.partition import RejectedRequest
from plink.runtime.elastic.transport import connection as listener_module
from plink.runtime.elastic.transport.connection import StoreConfig
from plink.runtime.elastic.transport.keys import RunKeys
from plink.runtime.elastic.transport.messages import Read, RowRequest
from plink.runtime.elastic.transport.records import Forged
from plink.runtime.elastic.worker.client import Client
from plink.runtime.elastic.worker.primaries import Timeouts, Unanswered
from tests.runtime.elastic.counting import COUNTS, FLOATS, ROWS, WIDTH, count, counted
from tests.runtime.elastic.stores import KEYS, NO_LIMIT, PATIENCE_S, hand_over, store, wait_for


def test_a_dead_server_is_a_clear_error_within_the_time_out() -> None:
    with store(COUNTS, BSP(), servers=2) as run:
        run.open(1)
        client = run.client(0)
        count(client, 2)
        run.servers[1].close()
        late = run.client(0, clock=client.now, timeouts=Timeouts(0.3, NO_LIMIT))
        with pytest.raises(Unanswered, match=rf"partition 1 at {run.servers[1].address}.*(connect|connection)"):
            late.read("n", [1])


def test_a_move_to_a_dead_server_changes_nothing() -> None:
    with store(COUNTS, BSP(), servers=2) as run:
        run.open(1, servers=1)
        client = run.client(0)
        count(client, 2)
        run.servers[1].close()
        with pytest.raises(PlinkError, match="cannot connect"):
            hand_over(run.servers[0], 0, run.servers[1].address, 1)
        count(client, 4)
        assert np.array_equal(run.state(), counted(1, 4))


def test_configuration_errors_are_reported() -> None:
    with store(COUNTS, BSP(), servers=2) as run:
        run.open(1, servers=1)
        client = run.client(0)
        for wrong, says in (
            (lambda: client.read("m", [0]), "'m'"),
            (lambda: client.read("n", [ROWS]), f"it has {ROWS}"),
            (lambda: client.read("n", [-1]), "-1"),
            (lambda: client.read("n", [0.5]), "float64"),
            (lambda: client.update("n", [0], [1, 2, 3]), "shape"),
            (lambda: client.update("n", [0], [[0.5] * WIDTH]), "type float64"),
        ):
            with pytest.raises(InputError, match=says):
                wrong()
        with pytest.raises(PlinkError, match="worker 7 does not take part"):
            run.client(7).push()
        for refused, says in (
            (lambda: run.servers[0].open(0, {0: 0}, term=1), "here already"),
            (lambda: run.servers[0].open(9, {0: 0}), "partition 9 of 4"),
            (lambda: run.servers[0].prepare(0, run.servers[0].address, 1, replica=""), "is here already"),
            (lambda: run.servers[0].prepare(0, run.servers[1].address, 0, replica=""), "needs a later one"),
            (lambda: run.servers[1].prepare(0, run.servers[0].address, 1, replica=""), "not served here"),
            (lambda: run.servers[0].commit(0, 1), "no move of partition 0 in term 1"),
            (lambda: run.servers[0].set_replica(0, run.servers[1].address), "is no replica"),
            (lambda: run.servers[0].restore_to(0, run.servers[1].address, 0, [0], 0), "not backed up here"),
            (lambda: run.servers[1].restore_to(0, run.servers[0].address, 1, [0], 0), "not backed up here"),
            (lambda: run.servers[1].promote(0, [0], 0, term=1), "no replica"),
            (lambda: run.servers[1].workers_from(0, [0], 0), "not served here"),
            (lambda: run.servers[0].roll_back(5, 1), "not 5"),
        ):
            with pytest.raises(RejectedRequest, match=says):
                refused()


def test_numbers_that_are_none_are_refused() -> None:
    with store(FLOATS) as run:
        run.open(1)
        client = run.client(0)
        for bad in (np.nan, np.inf):
            with pytest.raises(InputError, match="NaN"):
                client.update("b", [1], [[bad]])
        client.push()
        assert not run.state(1).any()


def test_unauthenticated_clients_and_garbage_end_their_connections_only() -> None:
    with store(COUNTS) as run:
        run.open(1)
        (server,) = run.servers
        host, _, port = server.address.rpartition(":")
        client = run.client(0)
        count(client, 1)

        def connected() -> socket.socket:
            sock = socket.create_connection((host, int(port)))
            sock.settimeout(PATIENCE_S)
            return sock

        with connected() as sock, contextlib.suppress(ConnectionResetError):
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
            while sock.recv(100):
                pass
        config = StoreConfig(COUNTS, RunKeys.make(), BSP())
        unauthenticated = Client(config, 0, run.primaries, timeouts=Timeouts(0.2))
        with pytest.raises(PlinkError):
            unauthenticated.read("n", [0])
        for garbage in (bytes(100), b"plPS" + bytes(200)):
            channel = KEYS.connect(connected())  # the right keys and no sense
            channel.send([memoryview(garbage)])
            with pytest.raises(PlinkError):
                channel.receive_into(memoryview(bytearray(1)))
            channel.close()
        wait_for(lambda: len(run.refused) >= 4)
        assert any("begins with" in reason for reason in run.refused)
        count(client, 3)
        assert np.array_equal(run.state(), counted(1, 3))


def test_a_server_goes_on_accepting_after_it_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file descriptor is left, then no thread: both pass."""
    with store(COUNTS) as run:
        run.open(1)
        (server,) = run.servers
        errors: list[Exception] = [OSError(24, "Too many open files"), RuntimeError("can't start new thread")]
        listener = server.listener
        real = listener._serve

        def accept() -> tuple[socket.socket, tuple[str, int]]:
            result = server_socket.accept()
            if errors and isinstance(errors[0], OSError):
                result[0].close()
                raise errors.pop(0)
            return result

        class Thread(threading.Thread):
            def start(self) -> None:
                if self._target is real and errors:  # type: ignore[attr-defined]
                    raise errors.pop(0)
                super().start()

        server_socket = listener._listening
        monkeypatch.setattr(listener, "_serve", real)
        monkeypatch.setattr(listener_module.threading, "Thread", Thread)
        monkeypatch.setattr(listener, "_listening", type("Tap", (), {"accept": staticmethod(accept)})())
        count(run.client(0), 1)  # the first connection is taken by the accept() that was under way already
        count(run.client(0, clock=1), 2)
        count(run.client(0, clock=2), 3)
        monkeypatch.undo()
        assert not errors
        assert sum("listening" in reason for reason in run.refused) == 2
        assert np.array_equal(run.state(), counted(1, 3))


def test_an_answer_to_another_question_is_not_taken() -> None:
    """A connection that was left in the midst of an exchange is closed; an answer names its question."""
    with store(COUNTS) as run:
        run.open(1)
        asks = [Read(0, worker=0, state=-1, wanted=(RowRequest(0, range(rows)),)) for rows in (1, 2)]
        with contextlib.closing(run.servers[0].connection(run.servers[0].address)) as line:
            line.post(asks[0])
            line.post(asks[1])
            with pytest.raises(Forged, match="does not answer"):
                line.answer(asks[1])
            with pytest.raises(KeyError), line._closed_on_error():
                raise KeyError
            assert line._channel is None
            assert len(line.ask(asks[1]).blocks[0].values) == 2


def test_numbers_that_a_table_has_no_room_for_are_refused() -> None:
    with store(Layout((Table("f", 3, 1, "float32"), Table("i", 3, 1, "int32")), 1)) as run:
        run.open(1)
        client = run.client(0)
        with pytest.raises(InputError, match=r"infinities .* in float32"):
            client.update("f", [0], [[1e300]])
        for bad in (3_000_000_000, -3_000_000_000):
            with pytest.raises(InputError, match="int32 has no room"):
                client.update("i", [0], [[bad]])
        client.update("i", [0], [[2_000_000_000]])
        client.update("f", [0], np.array([[1e30]]))
        client.push()
        assert run.state(1)[0, 0] == 2_000_000_000
        assert run.state(0)[0, 0] == np.float32(1e30)
