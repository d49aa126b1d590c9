"""`plink diff`: what changed between two files, in words or as JSON, with the exit code that tells CI."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.files import refusal, write
from tests.conftest import typed
from tests.model.schemas import keys


def network(slow: int | None = None, prefix: str = "node-", factor: float = 3, **changes: Any) -> dict[str, Any]:
    """Twelve hosts in two racks, one of them slow if asked for."""
    rows = [
        [0.0 if i == j else (40.0 if i // 6 == j // 6 else 90.0) * (factor if slow in (i, j) else 1) for j in range(12)]
        for i in range(12)
    ]
    hosts = [{"name": f"{prefix}{i:02}", "address": f"10.0.0.{i}"} for i in range(12)]
    return {"schema": "plink.network/1", "hosts": hosts, "latency_us": rows} | changes


def test_no_change_is_reported_as_such(tmp_path: Path) -> None:
    write(tmp_path / "a.json", network(measured_at="2026-01-02T03:04:05+00:00"))
    done = typed("diff", "a.json", "a.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first == "a.json (2026-01-02 03:04) -> a.json (2026-01-02 03:04): 12 hosts, 66 pairs' round trips"
    assert second == "nothing changed beyond noise"
    document = json.loads(typed("diff", "a.json", "a.json", "--json", cwd=tmp_path).stdout)
    assert (document["schema"], document["ok"], document["findings"]) == ("plink.diff/1", True, [])


def test_regression_is_a_line_and_an_exit_code(tmp_path: Path) -> None:
    write(tmp_path / "a.json", network())
    write(tmp_path / "b.json", network(slow=4))
    done = typed("diff", "a.json", "b.json", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "plink: error: got worse: 1 error\n"
    (line,) = [line for line in done.stdout.splitlines() if "worse" in line]
    assert " ".join(line.split()) == "error worse node-04 round trip 90 us 270 us 3.00 x, 11 pairs"
    document = json.loads(typed("diff", "a.json", "b.json", "--json", cwd=tmp_path).stdout)
    rows = [(row["severity"], row["hosts"]) for row in document["findings"]]
    assert (document["ok"], rows) == (False, [("error", ["node-04"])])
    assert set(document) == keys("diff")
    # The other way round it got better, which is told and is no failure.
    done = typed("diff", "b.json", "a.json", cwd=tmp_path)
    assert done.returncode == 0
    assert "better  node-04" in done.stdout
    assert typed("diff", "a.json", "b.json", "--threshold", "3", cwd=tmp_path).returncode == 0
    assert typed("diff", "a.json", "b.json", "--floor", "1ms", cwd=tmp_path).returncode == 0


def test_fail_on_error_lets_warnings_pass(tmp_path: Path) -> None:
    """1.5 times as slow is a warning, 3 times an error."""
    write(tmp_path / "a.json", network())
    write(tmp_path / "b.json", network(slow=4, factor=1.5))
    done = typed("diff", "a.json", "b.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "plink: error: got worse: 1 warning\n")
    done = typed("diff", "a.json", "b.json", "--fail-on", "error", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "warning  worse  node-04" in done.stdout


def test_many_findings_that_are_alike_share_a_line(tmp_path: Path) -> None:
    before, after = network(), network()
    for host in (1, 3, 5, 7, 9):
        for other in range(12):
            if other != host:
                for i, j in ((host, other), (other, host)):
                    after["latency_us"][i][j] *= 2.5
    write(tmp_path / "a.json", before)
    write(tmp_path / "b.json", after)
    done = typed("diff", "a.json", "b.json", cwd=tmp_path)
    assert done.stderr == "plink: error: got worse: 5 errors\n"
    (line,) = [line for line in done.stdout.splitlines() if "worse" in line]
    assert "5 hosts: node-[01,03,05,07,09]" in line


def test_hosts_that_came_went_and_moved_are_named(tmp_path: Path) -> None:
    before, after = network(), network()
    after["hosts"][0]["name"] = "node-99"
    after["hosts"][1]["address"] = "10.9.9.9"
    write(tmp_path / "a.json", before)
    write(tmp_path / "b.json", after)
    done = typed("diff", "a.json", "b.json", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [
        "nothing changed beyond noise",
        "not in the new file: node-00",
        "only in the new file: node-99",
        "at another address now: node-01",
    ]


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        (network(), network(prefix="other-"), 4, "a.json and b.json share no host, by name"),
        (network(), {"schema": "plink.order/1"}, 2, "b.json: schema: expected 'plink.network/1'"),
        (network(halves_us=[1]), network(), 2, "a.json: halves_us: expected a list of 2"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    old: dict[str, Any], new: dict[str, Any], code: int, message: str, tmp_path: Path
) -> None:
    write(tmp_path / "a.json", old)
    write(tmp_path / "b.json", new)
    assert refusal(typed("diff", "a.json", "b.json", cwd=tmp_path), code).startswith(message)


def test_one_host_and_one_standard_input_are_too_few(tmp_path: Path) -> None:
    alone = {"schema": "plink.network/1", "hosts": [{"name": "a"}], "latency_us": [[0]]}
    write(tmp_path / "a.json", alone)
    assert "share one host (a)" in refusal(typed("diff", "a.json", "a.json", cwd=tmp_path), 4)
    assert "standard input holds one file" in refusal(typed("diff", "-", "-", cwd=tmp_path))
    assert "is not a duration" in refusal(typed("diff", "a.json", "a.json", "--floor", "x", cwd=tmp_path))
    (tmp_path / "nan.json").write_text('{"schema": "plink.network/1", "hosts": [{"name": "a"}], "latency_us": [[NaN]]}')
    assert refusal(typed("diff", "nan.json", "a.json", cwd=tmp_path)).startswith("nan.json")


def test_ci_annotations_by_kind_of_regression(tmp_path: Path) -> None:
    write(tmp_path / "a.json", network())
    write(tmp_path / "b.json", network(slow=4))
    for new, failures in (("a.json", 0), ("b.json", 1)):
        done = typed("diff", "a.json", new, "--junit", "out.xml", cwd=tmp_path)
        assert done.returncode == failures
        top = ElementTree.parse(tmp_path / "out.xml").getroot()
        assert (top.get("tests"), top.get("failures")) == ("5", str(failures))
    (failed,) = [case for case in top.iter("testcase") if case.find("failure") is not None]
    assert failed.get("name") == "round trips"
    failure = failed.find("failure")
    assert failure is not None
    assert failure.text == "node-04 round trip 90 us -> 270 us 3.00 x, 11 pairs"


def test_ci_annotation_of_an_empty_comparison(tmp_path: Path) -> None:
    """The file of an earlier day must not stay there and say that all is well."""
    (tmp_path / "out.xml").write_text("of yesterday")
    done = typed("diff", "a.json", "nowhere.json", "--junit", "out.xml", cwd=tmp_path)
    assert "no such file" in refusal(done)
    top = ElementTree.parse(tmp_path / "out.xml").getroot()
    assert (top.get("tests"), top.get("failures"), top.get("errors")) == ("1", "0", "1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--floor", "10"], "of which unit? Write 10us, or ms"),
        (["--floor", "2s"], "it takes 0us to 1s"),
        (["--floor", "ten"], "is not a duration"),
        (["--threshold", "nan"], "--threshold nan: it takes 0.01 to 100"),
        (["--threshold", "0"], "--threshold 0: it takes 0.01 to 100"),
    ],
)
def test_limits_that_nothing_reaches_are_refused(words: list[str], message: str, tmp_path: Path) -> None:
    """A bare number was seconds: nothing ever got worse."""
    write(tmp_path / "a.json", network())
    write(tmp_path / "b.json", network(slow=4))
    assert message in refusal(typed("diff", "a.json", "b.json", *words, cwd=tmp_path))


def test_a_shared_link_that_nobody_could_measure_is_mentioned(tmp_path: Path) -> None:
    row = {"members": [f"node-0{i}" for i in range(6)], "out_gbps": 4.0, "in_gbps": 8.0}
    write(tmp_path / "a.json", network(shared_links=[{"groups": [row]}]))
    write(tmp_path / "b.json", network(shared_links=[{"groups": [row | {"out_gbps": None, "why": "no answer"}]}]))
    write(tmp_path / "c.json", network())
    for new, count in (("b", "one shared capacity was"), ("c", "two shared capacities were")):
        done = typed("diff", "a.json", f"{new}.json", cwd=tmp_path)
        assert f"{count} measured before and not now: not compared" in done.stdout
    write(tmp_path / "d.json", network(shared_links=[{"groups": [row | {"out_gbps": 0}]}]))
    done = typed("diff", "a.json", "d.json", cwd=tmp_path)
    assert done.returncode == 1
    assert "4 Gbit/s  0 Gbit/s" in done.stdout
    (finding,) = json.loads(typed("diff", "a.json", "d.json", "--json", cwd=tmp_path).stdout)["findings"]
    assert set(finding) == keys("diff", "properties", "findings", "items") - {"interface"}


def test_compared_files_content_is_escaped(tmp_path: Path) -> None:
    mixed = [[int(i < 6 and j < 6) for j in range(12)] for i in range(12)]
    methods = ["\x1b]0;x\x07", "\x1b[31m"]
    write(tmp_path / "a.json", network(measured_at="\x1b[2J2026", methods=methods, method_used=[[0] * 12] * 12))
    write(tmp_path / "b.json", network(methods=methods, method_used=mixed))
    done = typed("diff", "a.json", "b.json", cwd=tmp_path)
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stdout.startswith("a.json (\\x1b[2J2026) -> b.json: ")
    assert "were measured by another method now (\\x1b]0;x\\x07 -> \\x1b[31m): not compared" in done.stdout
