"""The log of an elastic run: what is written is read back, what is none of its lines is named, cut lines do no harm."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import InputError, PlinkError
from plink.model.elastic.fields import MAX_DELAY_BINS, UpdateCounts
from plink.records.elastic_log import (
    ActionLogEntry,
    CheckpointLogEntry,
    ControllerEvent,
    ElasticLog,
    EndLogEntry,
    Entry,
    HostEvent,
    Iteration,
    RollBackLogEntry,
    StageChange,
    TrafficLogEntry,
    read_elastic_log,
)

AT = st.integers(0, 10**9).map(lambda millionths: millionths / 1e6)
NUMBER, MAYBE, TEXT = st.integers(0, 10**12), st.none() | st.floats(0, 1e6), st.text(max_size=20)
TIER, STAGE = st.sampled_from(["reliable", "transient"]), st.sampled_from([1, 2, 3])
ENTRY = st.one_of(
    st.builds(HostEvent, AT, TEXT, NUMBER, TIER, NUMBER,
              st.sampled_from(["joined", "warned", "left", "failed", "released"]), MAYBE, MAYBE, TEXT),
    st.builds(StageChange, AT, STAGE, TEXT),
    st.builds(Iteration, AT, NUMBER, AT, STAGE, NUMBER, NUMBER, st.none() | st.floats(-1e9, 1e9),
              st.dictionaries(TEXT, st.tuples(AT, AT, NUMBER), max_size=3)),
    st.builds(ActionLogEntry, AT, TEXT, TEXT),
    st.builds(RollBackLogEntry, AT, NUMBER, NUMBER, NUMBER),
    st.builds(ControllerEvent, AT, st.sampled_from(["started", "restarted"]), TEXT),
    st.builds(CheckpointLogEntry, AT, NUMBER, AT, NUMBER),
    st.builds(TrafficLogEntry, AT, TEXT, NUMBER, NUMBER, st.none() | st.builds(
        UpdateCounts, st.lists(NUMBER, max_size=MAX_DELAY_BINS).map(tuple), NUMBER, NUMBER, NUMBER)),
    st.builds(EndLogEntry, AT, AT, st.integers(-9, 200), TEXT),
)  # fmt: skip
STARTED = ControllerEvent(0.0, "started")


def written(path: Path, *entries: Entry) -> Path:
    log = ElasticLog(path)
    for entry in entries:
        log.add(entry)
    log.close()
    assert log.write_error is None
    return path


@settings(max_examples=30)
@given(st.lists(ENTRY, min_size=1, max_size=10))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, entries: list[Entry]) -> None:
    path = written(tmp_path_factory.mktemp("log") / "elastic.jsonl", *entries)
    assert read_elastic_log(path) == tuple(entries)


def test_lines_are_as_they_were_agreed_upon(tmp_path: Path) -> None:
    entries = [
        HostEvent(1.0, "b", 4, "transient", 2, "warned", 0.25, 30.0, "gcp: preempted"),
        Iteration(2.5, 7, 0.5, 2, 8, 6, None, {"b": (0.25, 0.5, 3)}, 0.01, {"b": {"c": 0.08}}),
        RollBackLogEntry(3.0, 5, 2, 1),
        TrafficLogEntry(3.5, "b", 10, 20),
        EndLogEntry(4.0, 4.0, 0, "done"),
    ]
    lines = [json.loads(line) for line in written(tmp_path / "log", *entries).read_text().splitlines()]
    assert lines == [
        {"at": 0, "what": "log", "schema": "plink.elastic-log/1"},
        {"at": 1.0, "what": "host", "host": "b", "number": 4, "tier": "transient", "slots": 2, "event": "warned",
         "price": 0.25, "seconds": 30.0, "why": "gcp: preempted"},
        {"at": 2.5, "what": "iteration", "iteration": 7, "seconds": 0.5, "stage": 2, "workers": 8, "clock": 6,
         "objective": None, "work": {"b": [0.25, 0.5, 3]}, "moved": 0.01, "help": {"b": {"c": 0.08}}},
        {"at": 3.0, "what": "rolled back", "clock": 5, "generation": 2, "redone": 1},
        {"at": 3.5, "what": "traffic", "host": "b", "sent": 10, "received": 20, "updates": None},
        {"at": 4.0, "what": "end", "seconds": 4.0, "code": 0, "why": "done"},
    ]  # fmt: skip


def test_a_line_is_in_the_file_when_it_was_added_and_lines_do_not_mix(tmp_path: Path) -> None:
    log = ElasticLog(tmp_path / "log")
    log.add(STARTED)
    assert read_elastic_log(tmp_path / "log") == (STARTED,)
    entries = [ActionLogEntry(0.0, "x" * 5000, str(k)) for k in range(8)]
    threads = [threading.Thread(target=lambda: [log.add(entry) for entry in entries]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    assert len(read_elastic_log(tmp_path / "log")) == 33


def test_an_objective_that_diverged_is_null(tmp_path: Path) -> None:
    path = written(tmp_path / "log", Iteration(1.0, 1, 1.0, 1, 1, 1, float("nan")))
    assert read_elastic_log(path) == (Iteration(1.0, 1, 1.0, 1, 1, 1, None),)


def test_restarted_controller_appends_after_the_last_whole_line(tmp_path: Path) -> None:
    path = written(tmp_path / "log", STARTED)
    with path.open("a") as file:
        file.write('{"at": 1.0, "what": "iter')
    assert read_elastic_log(path) == (STARTED,)
    again = ControllerEvent(2.0, "restarted", "it was killed")
    assert read_elastic_log(written(path, again)) == (STARTED, again)
    assert path.read_text().count("schema") == 1


def test_a_log_without_a_head_or_with_more_than_is_known(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        '{"at": 1, "what": "news", "x": 1}\n{"at": 2, "what": "controller", "event": "started", "more": [1]}'
    )
    assert read_elastic_log(path) == (ControllerEvent(2, "started"),)


def test_unwritable_entry_is_reported_once(tmp_path: Path) -> None:
    with pytest.raises(PlinkError, match="cannot write"):
        ElasticLog(tmp_path / "nowhere" / "log")
    log = ElasticLog(tmp_path / "log")
    log.close()
    log.add(STARTED)
    log.add(STARTED)
    assert log.write_error is not None
    assert log.write_error.startswith(f"{tmp_path / 'log'} ends here: ")


ITERATION = {"at": 1, "what": "iteration", "iteration": 1, "seconds": 1, "stage": 1, "workers": 1, "clock": 1}
HOST = {"at": 1, "what": "host", "host": "a", "number": 0, "tier": "reliable", "slots": 1, "event": "joined"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("rubbish", "no JSON object"),
        ("[" * 100_000, "no JSON object"),
        ({"at": 1}, 'it has no "what"'),
        ({key: value for key, value in ITERATION.items() if key != "clock"}, "clock: is missing"),
        (ITERATION | {"seconds": -1}, "seconds: expected a number >= 0, got -1"),
        (ITERATION | {"stage": 4}, "stage: choose one of 1, 2, 3; got 4"),
        (ITERATION | {"workers": 1.5}, "workers: expected a whole number, got 1.5"),
        (HOST | {"tier": "golden"}, "tier: choose one of reliable, transient; got 'golden'"),
        (HOST | {"host": 7}, "host: expected text, got 7"),
        ('{"at": NaN, "what": "stage", "stage": 1}', "no JSON object"),
    ],
)
def test_a_line_that_is_none_is_named(line: Any, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    text = line if isinstance(line, str) else json.dumps(line)
    path.write_text(f"{json.dumps(HOST)}\n{text}\n{json.dumps(HOST)}\n")
    with pytest.raises(InputError) as caught:
        read_elastic_log(path)
    assert caught.value.location.startswith(f"{path}:2")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it tells nothing yet"),
        (b'{"at": 0, "wh', "it tells nothing yet"),
        (
            b'{"schema": "plink.autotune/1", "hosts": []}\n',
            "schema: expected 'plink.elastic-log/1', got 'plink.autotune/1'",
        ),
        (b"\xff\xfe\n", "not a text file"),
    ],
)
def test_a_file_that_is_no_log(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(InputError, match=reason):
        read_elastic_log(tmp_path / "log")
    with pytest.raises(InputError, match="No such file"):
        read_elastic_log(tmp_path / "nowhere")
