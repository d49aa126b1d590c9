"""`plink doctor` on a network file: judged as it is, in words or as JSON, with the exit code that tells CI."""

import json
from pathlib import Path
from typing import Any

from tests.cli.files import refusal, write
from tests.conftest import typed


def network(**changes: Any) -> dict[str, Any]:
    """Twelve hosts in two racks, nothing wrong with them."""
    rows = [
        [0 if i == j else 40 + (i * j) % 3 if i // 6 == j // 6 else 90 + (i + j) % 3 for j in range(12)]
        for i in range(12)
    ]
    return {"schema": "plink.network/1", "hosts": [{"name": f"h{i}"} for i in range(12)], "latency_us": rows} | changes


def test_where_nothing_is_wrong_it_says_so(tmp_path: Path) -> None:
    write(tmp_path / "n.json", network())
    done = typed("doctor", "n.json", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "no problems found\n", "")
    done = typed("doctor", "n.json", "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"schema": "plink.doctor/1", "ok": True, "hosts": {}, "findings": []}


def test_what_is_wrong_is_one_line_each(tmp_path: Path) -> None:
    document = network(loss_forward=[[0.0] * 12 for _ in range(12)])
    for j in range(12):
        if j != 4:
            document["latency_us"][4][j] += 70
            document["latency_us"][j][4] += 70
    document["loss_forward"][0][1] = 0.02
    document["latency_us"][2][7] = document["latency_us"][7][2] = None
    write(tmp_path / "n.json", document)
    done = typed("doctor", "n.json", cwd=tmp_path)
    assert done.returncode == 1
    loss, slow, hole = done.stdout.splitlines()
    assert slow.startswith("warning: slow host: h4: ")
    assert loss.startswith("error: loss: h[0-1]: 2.00 % of the probes are lost from h0 to h1; ")
    assert hole.startswith("warning: unmeasured: h[2,7]: 1 pair was not measured, first h2 -> h7: never tried; ")
    assert done.stderr == "plink: error: problems found: 1 error, 2 warnings\n"
    as_json = json.loads(typed("doctor", "n.json", "--json", cwd=tmp_path).stdout)
    assert as_json["ok"] is False
    assert [finding["kind"] for finding in as_json["findings"]] == ["loss", "slow host", "unmeasured"]
    assert all(set(finding) >= {"kind", "hosts", "evidence", "advice"} for finding in as_json["findings"])


def test_of_many_pairs_some_are_named(tmp_path: Path) -> None:
    rows = [[0 if i == j else 100 for j in range(60)] for i in range(60)]
    for k in range(14):
        rows[k][k + 20] = rows[k + 20][k] = 200 + k
    write(tmp_path / "n.json", network(hosts=[{"name": f"h{i}"} for i in range(60)], latency_us=rows))
    done = typed("doctor", "n.json", cwd=tmp_path)
    *named, rest = done.stdout.splitlines()
    assert [line.split(": ")[2] for line in named] == [f"h[{k},{k + 20}]" for k in range(13, 3, -1)]
    assert "4 pairs more" in rest
    assert done.stderr == "plink: error: problems found: 14 warnings\n"
    assert len(json.loads(typed("doctor", "n.json", "--json", cwd=tmp_path).stdout)["findings"]) == 14


def test_one_host_has_no_network(tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("alone\n")
    assert "one host (alone) has no network to diagnose" in refusal(typed("doctor", "hosts.txt", cwd=tmp_path))
