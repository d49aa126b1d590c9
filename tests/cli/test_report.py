"""`plink report`: the page it writes, what it takes without being told, and what it refuses before it draws."""

import re
from pathlib import Path
from typing import Any

import pytest

from plink.model.network import network_from_json
from tests.cli.files import listing, network, refusal, refuses, write
from tests.conftest import typed

ORDER = {"schema": "plink.order/1", "algo": "ring", "hosts": list("acbd"), "cost": 220, "baseline": {"given": 400}}


def three(**changes: Any) -> dict[str, Any]:
    """Three hosts: too few to be placed, so that the page is made at once."""
    rows = [[0, 10, 90], [11, 0, 95], [90, 95, 0]]
    return network(hosts=[{"name": name} for name in "abc"], latency_us=rows, **changes)


def embedding(document: dict[str, Any]) -> dict[str, Any]:
    """As `plink embed` leaves it for the four hosts of :func:`network`."""
    fingerprint = network_from_json(document, "x").fingerprint()
    points = [[0.0, 0.0, 0.0], [90.0, 0.0, 1.0], [0.0, 10.0, 0.0], [90.0, 10.0, 0.0]]
    return {
        "schema": "plink.embedding/1", "network": fingerprint, "hosts": list("abcd"), "left_out": [], "alpha": 1.0,
        "held_out_error": 0.07, "coordinates": points, "fitted_us": document["latency_us"],
    }  # fmt: skip


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    write(tmp_path / "cloud.json", network())
    write(tmp_path / "order.json", ORDER)
    (tmp_path / ".plink").mkdir()
    write(tmp_path / ".plink" / "embedding.json", embedding(network()))
    return tmp_path


def test_a_page_with_everything(cloud: Path) -> None:
    runs = [{"order": "<i>given", "predicted_us": 400, "achieved_s": [0.4, 0.5]}, {"order": "x", "achieved_s": [0.2]}]
    write(cloud / "results.json", {"schema": "plink.check/1", "runs": runs})
    words = ("--order", "order.json", "--results", "results.json", "-o", "page.html", "--png", ".")
    done = typed("report", "cloud.json", *words, cwd=cloud)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "read .plink/embedding.json" in done.stderr
    assert done.stderr.endswith("report -> page.html\nplink: 12 pictures -> given.png and others\n")
    text = (cloud / "page.html").read_text()
    for part in ("The network between 4 hosts", "two groups", "A ring costs 220 us", "within 7%", "&lt;i&gt;given"):
        assert part in text
    assert (cloud / "map.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (cloud / "achieved.svg").read_text()


def test_hubs_are_behind_the_hosts_of_the_order(tmp_path: Path) -> None:
    document = network()
    write(tmp_path / "n.json", document | {"hosts": [*document["hosts"][:3], {"name": "d", "role": "hub", "gbps": 10}]})
    write(tmp_path / "o.json", {"schema": "plink.order/1", "algo": "ring", "hosts": list("cab")})
    done = typed("report", "n.json", "--order", "o.json", "-o", "-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r">d</th><td>.{,99} 2</td><td>hub</td>", done.stdout)


def test_what_was_left_here_is_taken(cloud: Path) -> None:
    (cloud / "cloud.json").rename(cloud / ".plink" / "network.json")
    fingerprint = network_from_json(network(), "x").fingerprint()
    write(cloud / ".plink" / "order.json", ORDER | {"network": fingerprint})
    write(cloud / ".plink" / "groups.json", {"schema": "plink.groups/1", "groups": [["a", "b"], ["c", "d"]]})
    done = typed("report", cwd=cloud)
    assert done.returncode == 0, done.stderr
    for name in ("network", "order", "groups", "embedding"):
        assert f"read .plink/{name}.json" in done.stderr
    assert (cloud / "report.html").exists()


def test_what_is_of_another_network_is_left_aside(tmp_path: Path) -> None:
    write(tmp_path / "n.json", three())
    (tmp_path / ".plink").mkdir()
    write(tmp_path / ".plink" / "order.json", ORDER | {"network": "sha256:0"})
    write(tmp_path / ".plink" / "groups.json", {"groups": [["x"]]})
    write(tmp_path / ".plink" / "embedding.json", {"network": "sha256:0"})
    done = typed("report", "n.json", "-o", "-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ignored" in done.stderr
    assert "The hosts could not be placed: an embedding takes 4 hosts" in done.stdout
    assert "The last order was found for another network" in done.stdout
    assert sorted(listing(tmp_path)) == [
        ".plink",
        *(f".plink/{n}.json" for n in ("embedding", "groups", "order")),
        "n.json",
    ]


def test_a_demo_s_figures_are_runs_too(tmp_path: Path) -> None:
    write(tmp_path / "n.json", three())
    demo = {
        "schema": "plink.demo/1",
        "predicted_baseline_s": 0.5,
        "predicted_plink_s": 0.2,
        "baseline_samples_s": [0.5, 0.6],
    }
    write(tmp_path / "demo.json", demo | {"plink_samples_s": [0.25]})
    done = typed("report", "n.json", "--results", "demo.json", "-o", "-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "500 – 600 ms" in done.stdout


def test_trees_and_other_algorithms(tmp_path: Path) -> None:
    write(tmp_path / "n.json", three())
    for algo in ("tree", "nccl", "someone-s-own"):
        write(tmp_path / "o.json", {"schema": "plink.order/1", "algo": algo, "hosts": list("cab")})
        done = typed("report", "n.json", "--order", "o.json", "-o", "-", cwd=tmp_path)
        assert done.returncode == 0, done.stderr


RUN = {"order": "given", "predicted_us": 1, "achieved_s": [0.1]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"schema": "plink.check/1", "affinity": {}}, "runs: is missing"),
        ({"schema": "plink.check/1", "runs": [3]}, "runs[0]: expected an object"),
        (
            {"schema": "plink.check/1", "runs": [RUN | {"achieved_s": ["x"]}]},
            "runs[0].achieved_s[0]: expected a number",
        ),
        (
            {"schema": "plink.check/1", "runs": [RUN, RUN | {"predicted_us": -1}]},
            "runs[1].predicted_us: expected a number >= 0",
        ),
        (
            {"schema": "plink.check/1", "runs": [RUN | {"predicted_us": 1e300}]},
            "runs[0].predicted_us: expected a number < 1e+15",
        ),
    ],
)
def test_results_that_are_none_are_refused(document: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path / "n.json", three())
    write(tmp_path / "r.json", document)
    refuses(tmp_path, ["report", "n.json", "--results", "r.json"], f"r.json: {message}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "nowhere/x.html"], "there is no folder nowhere"),
        (["--png", "nowhere"], "there is no such folder"),
        (["--png", "x.jpg"], "name a file that ends in .png"),
        (["--order", "o.json"], "the order leaves out hosts of the hosts list: c"),
        (["--order", "validated.json"], "validated.json: validation: expected an object"),
        (["--order", "none.json"], "none.json: no such file"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], message: str, tmp_path: Path) -> None:
    write(tmp_path / "n.json", three())
    write(tmp_path / "o.json", {"schema": "plink.order/1", "algo": "ring", "hosts": ["a", "b"]})
    write(
        tmp_path / "validated.json",
        {"schema": "plink.order/1", "algo": "ring", "hosts": list("abc"), "validation": [1]},
    )
    refuses(tmp_path, ["report", "n.json", *words], message)


@pytest.mark.parametrize("words", [["-o", "/proc/x.html"], ["--png", "/proc/x.png"]])
def test_where_nothing_can_be_written_no_work_is_done(words: list[str], tmp_path: Path) -> None:
    """It is said before the network is even read."""
    assert "cannot write /proc/" in refusal(typed("report", "none.json", *words, cwd=tmp_path), 1)


@pytest.mark.parametrize("change", [{"hosts": ["a", "z"]}, {"coordinates": [[0.0]]}, {"fitted_us": [[0]]}])
def test_a_broken_embedding_is_named(change: dict[str, Any], cloud: Path) -> None:
    write(cloud / ".plink" / "embedding.json", embedding(network()) | change)
    assert refusal(typed("report", "cloud.json", cwd=cloud)).startswith(".plink/embedding.json")


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"hosts": [{"name": "a"}], "latency_us": [[0]]}, 2, "one host (a) has no network to draw"),
        (
            {"latency_us": [[0 if i == j else None for j in range(4)] for i in range(4)]},
            4,
            "no round trip was measured",
        ),
    ],
)
def test_nothing_to_see(changes: dict[str, Any], code: int, message: str, tmp_path: Path) -> None:
    write(tmp_path / "n.json", network(**changes))
    assert message in refusal(typed("report", "n.json", cwd=tmp_path), code)


def test_a_name_in_any_script_is_drawn_and_what_is_no_character_is_replaced(tmp_path: Path) -> None:
    document = three(errors=[{"from": "a", "to": "b", "why": "x\ud800"}])
    document["latency_us"][0][1] = None
    write(tmp_path / "n.json", document)
    runs = [{"order": name, "predicted_us": 1, "achieved_s": [0.1]} for name in ("مرحبا 🎉", "a\x00\u202eb\ud800")]
    write(tmp_path / "r.json", {"schema": "plink.check/1", "runs": runs})
    done = typed("report", "n.json", "--results", "r.json", "--png", "x.png", cwd=tmp_path)
    assert (done.returncode, "arning" in done.stderr) == (0, False), done.stderr
    text = (tmp_path / "report.html").read_text()
    assert "مرحبا 🎉" in text
    assert "a\ufffd\ufffdb\ufffd" in text
    assert "x?" in text
