"""What ranks print through a launcher arrives as it was, however the launcher cuts and marks it."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from runners.launchers.frames import ERR, OUT, REPORT, FrameDecoder, encode_frame

PRINTED = st.lists(st.tuples(st.sampled_from([REPORT, OUT, ERR]), st.binary(min_size=1, max_size=200)), max_size=8)


@given(PRINTED, st.lists(st.integers(0, 2000), max_size=20))
def test_frames_survive_cuts(printed: list[tuple[str, bytes]], cuts: list[int]) -> None:
    """Cut anywhere, with ends of line added at each cut and those of the frames lost or kept."""
    text = b"".join(encode_frame(kind, data) for kind, data in printed).decode("latin-1")
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    frames, result = FrameDecoder(), []
    for start, end in itertools.pairwise(places):
        for line in text[start:end].split("\n"):
            result += frames.add(line)
    assert [(kind, data.encode("latin-1")) for kind, data in result] == printed


@given(st.binary(max_size=300))
def test_a_frame_holds_nothing_that_a_launcher_would_read(data: bytes) -> None:
    """One line, no mark's bracket, and never shorter than the marks that are put before it."""
    frame = encode_frame(OUT, data)
    assert frame.endswith(b"\n")
    assert frame.count(b"\n") == 1
    assert b"[" not in frame
    assert b"\0" not in frame
    assert len(frame) > 40


def test_output_outside_of_frames_is_labelled() -> None:
    """An interpreter that is not there says so by itself."""
    assert FrameDecoder().add("sh: python3: not found") == [("", "sh: python3: not found")]
    assert FrameDecoder().add(encode_frame(OUT, b"a").decode().rstrip(" \n") + " oops") == [(OUT, "a"), ("", " oops")]
