"""Arguments through `plink launch --runner local`: byte for byte, and never through a shell; also when run again."""

import json
import os
from pathlib import Path

from tests.conftest import typed

TELL = """
import json, os, sys
print(json.dumps([os.fsencode(word).hex() for word in [*sys.argv[1:], os.environ["MINE"]]]))
"""
ARGUMENTS = {
    "quotes": ["it's", '"quoted"', "back\\slash", "'"],
    "blanks": ["", " ", "a  b", "\t", "two\nlines", "\r\n"],
    "shell": ["$(touch gotcha)", "`touch gotcha`", "$HOME", "; touch gotcha", "*", "~", "&&", "|", "%s", "{a,b}"],
    "options": ["--slots", "-h", "--", "--json", "--debug", "-"],
    "bytes": ["ünïcode", os.fsdecode(b"not \xff utf-8"), os.fsdecode(b"\x80"), "\x01"],
}


def test_they_reach_every_rank_unchanged(tmp_path: Path) -> None:
    (tmp_path / "tell.py").write_text(TELL)
    words = [word for words in ARGUMENTS.values() for word in words]
    mine = "it's $(touch gotcha)\n" + os.fsdecode(b"\xff")
    expected = [os.fsencode(word).hex() for word in [*words, mine]]
    for request in (["launch", "--runner", "local", "--slots", "2", "--env", f"MINE={mine}", "tell.py", *words],
                  ["runs", "rerun", "last"]):  # fmt: skip
        done = typed(*request, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        message = sorted(done.stdout.splitlines())
        assert [line[:4] for line in message] == ["[0] ", "[1] "]
        assert [json.loads(line[4:]) for line in message] == [expected, expected]
    assert not (tmp_path / "gotcha").exists()
