"""What ranks print is shown in whole lines, whatever the pieces it came in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.job.monitor import RankOutput

CHARACTERS = st.text(st.sampled_from("ab \té\n\n"), max_size=60)
Shown = list[tuple[int, str, str]]


def collecting() -> tuple[RankOutput, Shown]:
    """An output and the lines that it showed."""
    shown: Shown = []
    return RankOutput(lambda rank, stream, line: shown.append((rank, stream, line))), shown


def pieces(data: st.DataObject, whole: bytes) -> list[bytes]:
    """The same bytes, cut at random points."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    return [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


def decoded(piece: bytes) -> str:
    """As the rank's agent sends it."""
    return piece.decode("utf-8", "surrogateescape")


@given(CHARACTERS, st.data())
def test_lines_are_the_same_wherever_the_text_is_cut(text: str, data: st.DataObject) -> None:
    output, shown = collecting()
    for piece in pieces(data, text.encode()):
        output.add(0, "out", decoded(piece))
    output.finish(0)
    expected = text.removesuffix("\n").split("\n") if text else []
    printed = [line.encode("utf-8", "surrogateescape").decode() for _, _, line in shown]
    assert printed == expected


@given(st.binary(max_size=60).filter(lambda printed: b"\r" not in printed), st.data())
def test_bytes_that_are_no_text_come_out_as_they_went_in(printed: bytes, data: st.DataObject) -> None:
    output, shown = collecting()
    for piece in pieces(data, printed):
        output.add(0, "out", decoded(piece))
    output.finish(0)
    joined = b"".join(line.encode("utf-8", "surrogateescape") + b"\n" for _, _, line in shown)
    assert joined.removesuffix(b"\n") == printed.removesuffix(b"\n")
    assert not any("\udc80" <= char <= "\udcff" for line in output.last_lines(0) for char in line)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["out", "err"]), CHARACTERS), max_size=12))
def test_ranks_and_streams_are_kept_apart(written: list[tuple[int, str, str]]) -> None:
    output, shown = collecting()
    for rank, stream, text in written:
        output.add(rank, stream, text)
    for rank in range(3):
        output.finish(rank)
    for rank in range(3):
        for stream in ("out", "err"):
            whole = "".join(text for r, s, text in written if (r, s) == (rank, stream))
            expected = whole.removesuffix("\n").split("\n") if whole else []
            assert [line for r, s, line in shown if (r, s) == (rank, stream)] == expected


def test_a_line_is_shown_as_soon_as_it_is_whole() -> None:
    output, shown = collecting()
    output.add(3, "err", "half")
    assert shown == []
    output.add(3, "err", " a line\nand")
    assert shown == [(3, "err", "half a line")]


@pytest.mark.parametrize("form", ["\r{}", "{}\r", "\r  \r{}"])
def test_a_progress_bar_is_shown_as_it_stands_and_as_it_ends(form: str) -> None:
    """Never half a state; among the last lines a state gives way to the next."""
    now, shown = [0.0], list[str]()
    output = RankOutput(lambda rank, stream, line: shown.append(line), lambda: now[0])
    output.add(0, "out", "begun\n")
    for step in range(10, 310):
        now[0] = step / 10
        for character in form.format(f"step {step}"):
            output.add(0, "err", character)
    states, others = [line for line in shown if line.endswith("\r")], shown[:1]
    assert len(states) == 6
    assert all(len(state) == len("step 100\r") for state in states[2:])
    assert output.last_lines(0) == ["begun", states[-1].rstrip("\r")]
    output.add(0, "err", "\rstep 310\nnext\n")
    assert shown == [*others, *states, "step 310", "next"]
    assert output.last_lines(0) == ["begun", "step 310", "next"]


def test_a_state_that_was_shown_is_a_line_once_it_ends() -> None:
    output, shown = collecting()
    for text in ("100%\r", "\n", "next\n"):
        output.add(0, "err", text)
    assert [line for _, _, line in shown] == ["100%\r", "next"]
    assert output.last_lines(0) == ["100%", "next"]


@given(st.text(st.sampled_from("ab\r"), max_size=20), st.data())
def test_a_line_that_is_written_over_ends_as_it_was_last(text: str, data: st.DataObject) -> None:
    """Wherever it is cut; a carriage return before the end is that of another system's lines."""
    output, shown = collecting()
    for piece in pieces(data, f"{text}\n".encode()):
        output.add(0, "out", decoded(piece))
    assert shown[-1][2].removesuffix("\r") == text.rstrip("\r").rpartition("\r")[2]


@pytest.mark.parametrize("length", [1 << 16, 200_000])
def test_a_line_without_an_end_is_shown_in_pieces(length: int) -> None:
    """A progress bar that never ends its line must neither fill the memory nor be lost."""
    output, shown = collecting()
    for _ in range(0, length, 1000):
        output.add(0, "out", "x" * 1000)
    before_the_end = len(shown)
    output.finish(0)
    assert "".join(line for _, _, line in shown) == "x" * (-(-length // 1000) * 1000)
    assert before_the_end == (-(-length // 1000) * 1000 - 1) // (1 << 16)


def test_the_last_lines_of_a_rank_are_kept() -> None:
    output, _ = collecting()
    for number in range(100):
        output.add(0, "out" if number % 2 else "err", f"{number}\n")
    output.add(0, "err", "unfinished")
    output.add(1, "out", "another rank\n")
    output.finish(0)
    assert output.last_lines(0) == [*(str(number) for number in range(71, 100)), "unfinished"]
    assert output.last_lines(1) == ["another rank"]
    assert output.last_lines(7) == []
