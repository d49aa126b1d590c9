"""Files are written whole or not at all, and read with errors that name them."""

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import InputError, PlinkError, UsageError
from plink.model.storage import (
    check_apart,
    check_writable,
    parse_document,
    read_document,
    render_document,
    write_document,
    write_text,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_a_document_is_read_as_it_was_rendered(document: dict[str, object]) -> None:
    assert json.loads(render_document(document)) == document


def test_matrix_rows_are_one_a_line() -> None:
    text = render_document({"hosts": [{"name": "a", "slots": 1}, {"name": "b"}], "m": [[0, 1], [None, 0]], "e": {}})
    assert text == (
        '{\n  "hosts": [\n    {"name": "a", "slots": 1},\n    {"name": "b"}\n  ],\n'
        '  "m": [\n    [0, 1],\n    [null, 0]\n  ],\n  "e": {}\n}\n'
    )


@pytest.mark.parametrize("name", ["n.json", "n.json.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_part_of_the_text(name: str, encoding: str, tmp_path: Path) -> None:
    path, data = tmp_path / name, '{"größe": 1}\r\n'.encode(encoding)
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert read_document(path) == {"größe": 1}


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_a_failed_write_leaves_the_old_file(value: object, tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    write_document(path, {"old": 1})
    with pytest.raises((ValueError, TypeError)):
        write_document(path, {"first": "good", "then": value})
    assert read_document(path) == {"old": 1}
    assert os.listdir(tmp_path) == ["n.json"]


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    """The write is cut off by a real limit on the size of files, in a child process."""
    path = tmp_path / "n.json"
    write_document(path, {"old": 1})
    child = (
        "import resource, signal, sys\n"
        "from plink.model.storage import write_text\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "write_text(sys.argv[1], 'x' * 100_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", child, str(path)], capture_output=True, text=True, check=False)
    assert f"PlinkError: cannot write {path}: File too large\n" in done.stderr  # a tracer may have complaints after it
    assert read_document(path) == {"old": 1}
    assert os.listdir(tmp_path) == ["n.json"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """What was open before the write stays what it was: the new file is another one, renamed over it."""
    path = tmp_path / "n.json"
    write_text(path, "old")
    with path.open() as reader:
        write_text(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("target", ["file/n.json", "x" * 300])
def test_a_place_that_cannot_be_written_is_named(target: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(PlinkError, match=f"cannot write .*{target}: "):
        write_text(tmp_path / target, "text")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("no-such-folder/n.json", "there is no folder .*no-such-folder"),
        (".", "is a folder; name a file in it"),
        ("x" * 300, "cannot write .*: File name too long"),
    ],
)
def test_what_could_not_be_written_is_refused_before(target: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(PlinkError, match=reason):
        check_writable(tmp_path / target)
    assert os.listdir(tmp_path) == ["file"]


def test_a_check_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old")
    for path in (tmp_path / "old", tmp_path / "new", "-", "/dev/null"):
        check_writable(path)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("old", "old")]
    with pytest.raises(PlinkError, match="cannot write /proc/x: "):
        check_writable("/proc/x")


def test_a_device_is_written_to_and_not_replaced() -> None:
    write_text("/dev/null", "text")
    assert not Path("/dev/null").is_file()
    with pytest.raises(PlinkError, match="cannot write /dev/full: No space left on device"):
        write_text("/dev/full", "text")


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("there")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_text() == "text"


def test_names_in_gz_are_compressed_and_the_same_every_time(tmp_path: Path) -> None:
    path = tmp_path / "n.json.gz"
    write_document(path, {"a": 1})
    first = path.read_bytes()
    assert json.loads(gzip.decompress(first)) == {"a": 1}
    assert read_document(path) == {"a": 1}
    write_document(path, {"a": 1})
    assert path.read_bytes() == first


@pytest.mark.parametrize(
    "data", [b"plain text", gzip.compress(b'{"a": 1}' * 50, mtime=0)[:30], gzip.compress(b"\xff", mtime=0)]
)
def test_a_broken_gz_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "n.json.gz"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_document(path)
    assert caught.value.location.startswith(str(path))


def test_a_dash_is_standard_input_and_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"a": 1}')))
    assert read_document("-") == {"a": 1}
    write_document("-", {"a": 1})
    assert json.loads(capsys.readouterr().out) == {"a": 1}


def test_standard_input_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"{\n{")))
    with pytest.raises(InputError, match="standard input:2: not JSON"):
        read_document("-")
    monkeypatch.setattr(sys, "stdin", None)  # as Python has it when descriptor 0 is closed
    with pytest.raises(InputError, match="standard input: it is closed"):
        read_document("-")


@pytest.mark.parametrize("name", ["/dev/zero", "bomb.json.gz"])
def test_what_has_no_end_is_refused_before_the_memory_is_full(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plink.model.storage.MAX_DOCUMENT_BYTES", 3 << 20)
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(bytes(8 << 20)))
    with pytest.raises(InputError, match="more than 3 MiB, which no file of plink's has"):
        read_document(path)


@pytest.mark.parametrize("number", ["-1e400", "1" * 400 + ".0"])
def test_a_number_that_would_be_infinite_is_none(number: str) -> None:
    with pytest.raises(InputError, match="is too large a number"):
        parse_document(f'{{"a": [{number}]}}', "x.json")


def test_message_is_one_short_line_whatever_the_file_holds() -> None:
    error = InputError("x.json: \x1b[31m\n", "\u2028" + "a" * 5000)
    assert str(error).isprintable()
    assert len(str(error)) < 600
    assert str(error).startswith(r"x.json: \x1b[31m\n: \u2028aaa")


def test_a_result_may_not_take_the_place_of_what_is_read(tmp_path: Path) -> None:
    """By whatever name: with dots, through a link to the file or to its folder, as a second name of the file."""
    read, folder = tmp_path / "a.json", tmp_path / "folder"
    read.write_text("{}")
    folder.symlink_to(tmp_path)
    (tmp_path / "link").symlink_to(read)
    (tmp_path / "second").hardlink_to(read)
    for target in (read, f"{tmp_path}/./a.json", tmp_path / "link", folder / "a.json", tmp_path / "second"):
        with pytest.raises(UsageError, match="that is what is read; name another file"):
            check_apart(target, (None, "-", read))
    with pytest.raises(UsageError, match="two results cannot go to one file"):
        check_apart(tmp_path / "new", (read,), folder / "new")
    check_apart(tmp_path / "new", (read,), tmp_path / "newer")
    check_apart(None, (read,), read)
    check_apart("-", ("-",), "-")
    check_apart("/dev/null", ("/dev/null",), "/dev/null")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a link of somebody else")
def test_another_users_link_in_a_shared_folder_is_not_followed(tmp_path: Path) -> None:
    """As the kernel does not (protected_symlinks): whoever may write /tmp must not choose which file root replaces."""
    (tmp_path / "shadow").write_text("secret")
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    for name, target in (("order.json", tmp_path / "shadow"), ("folder", tmp_path)):
        (shared / name).symlink_to(target)
        os.chown(shared / name, 65534, 65534, follow_symlinks=False)
    (tmp_path / "mine").symlink_to(shared / "order.json")
    for path in (shared / "order.json", shared / "folder" / "shadow", tmp_path / "mine"):
        for write in (lambda: write_text(path, "{}"), lambda: check_writable(path)):  # noqa: B023
            with pytest.raises(PlinkError, match="a link of another user"):
                write()
    assert (tmp_path / "shadow").read_text() == "secret"


def test_own_links_are_followed_and_a_circle_ends(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "file").read_text() == "text"
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(PlinkError, match="cannot write"):
        write_text(tmp_path / "circle", "text")


def test_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("old")
    (tmp_path / "private").chmod(0o600)
    write_text(tmp_path / "private", "new")
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
