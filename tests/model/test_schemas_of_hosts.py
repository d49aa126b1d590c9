"""The schemas of what hosts, labs and jobs say of themselves while they are there, against what the code makes."""

import ast
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest

import plink
from plink.errors import HostError, InputError, PlinkError
from plink.model.hosts import Host, Hosts
from plink.model.storage import write_document
from plink.model.truth import read_truth
from plink.records import workspace
from plink.records.runs import Record
from plink.transport.addresses import host_identity
from plink.transport.fleet import AgentMessage
from probes.agent.inspection import inspect
from runners.elastic.control_socket import ControlSocket
from runners.lab.blueprint import LabSettings, draw
from solvers.elastic.step import status
from tests.model.schemas import FOLDER, Document, complaints, described, keys, printed
from tests.probes.fake_fleet import FakeFleet, host_at, round_trips
from tests.runners.autotune.test_daemon import tuned
from tests.runners.elastic.simulated_job import SimulatedJob


@pytest.mark.parametrize(
    "changes",
    [
        draw(LabSettings("lab", racks=2, hosts_per_rack=2)).truth().to_json(),
        {"positions": {"node-01": ["west", 4], "node-02": "east", "elsewhere": 3}},
        {"positions": {"node-01": ["west"]}, "racks": {"node-01": 0}, "colour": "green"},
        {},
        {"racks": []},
        {"racks": {"node-01": None}},
        {"positions": {"node-01": [True]}},
    ],
)
def test_a_truth_is_one_for_the_schema_where_it_is_one_for_the_reader(changes: Document, tmp_path: Path) -> None:
    document = {"schema": "plink.truth/1", **changes}
    write_document(tmp_path / "truth.json", document)
    hosts = Hosts(tuple(Host(name, name) for name in ("node-01", "node-02", "node-03")))
    try:
        read_truth(tmp_path / "truth.json", hosts)
    except InputError:
        assert complaints("truth", document)
    else:
        assert complaints("truth", document) == []


class Examined(FakeFleet):
    """Eight hosts that are all this machine, but for what is wrong with each."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(self._answer)
        self._facts = inspect("127.0.0.1", ["127.0.0.1"], lambda: None) | facts
        self._requests = itertools.count()

    def start(self, hosts: Hosts, settings: Document, on_start: Any, limit_s: float) -> dict[str, HostError]:
        """One is not there."""
        return {"h7": HostError("h7", "connection refused")}

    def close(self) -> None:
        """Nothing is to be ended."""

    def send(self, host: str, **body: Any) -> None:
        """The first word is answered with who it is."""
        if body["method"] != "begin":
            super().send(host, **body)
        elif host != "h7":
            ports = {"port": 1, "tcp_port": 2, "ssh_port": 22}
            message = {"address": f"10.0.0.{host[1:]}", "stamps": host != "h1", "python": "3.11.2", **ports}
            self.post(0.1, AgentMessage(host, {"type": "ready", **host_identity(), "boot_id": host, **message}))

    def _answer(self, host: str, body: Document) -> tuple[float, Document]:
        if body["method"] == "inspect":
            wrong: dict[str, Document] = {
                "h2": {"mtu": 1280},
                "h3": {"clocksource": "hpet"},
                "h4": {"governor": "powersave"},
                "h6": {"unix_time_s": time.time() + 40},
                "h5": {"counters": {"bw_in_allowance_exceeded": next(self._requests)}},
            }
            return 0.1, {**self._facts, **wrong.get(host, {})}
        if body["method"] == "routes":
            return 0.1, {"routes": [[None, None]] * len(body["addresses"]), "own": {}}
        if body["method"] == "flow_listen":
            return 0.1, {"port": 5000}
        if body["method"] == "flow_exchange":
            return 0.5, {"gbps": 1.0} if "receive_token" in body else {}
        peer = f"h{host_at(body['peer'][0] if body['method'] == 'pair' else body['peer'])}"
        if body["method"] == "icmp" and "h6" in (host, peer):
            return 0.5, round_trips(None)
        return 0.5, round_trips(300.0 if "h0" in (host, peer) else 30.0)


def test_a_diagnosis_of_hosts(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    """All of the command but agents and lines to them."""
    fleet = Examined()
    monkeypatch.setattr("probes.session.Fleet", lambda connector, program: fleet)
    monkeypatch.setattr("plink.features.diagnose.run.connector_for", lambda hosts, accept: None)
    (tmp_path / "hosts.txt").write_text("".join(f"h{i} address=10.0.0.{i}\n" for i in range(8)))
    with pytest.raises(PlinkError):
        printed(capsys, "doctor", str(tmp_path / "hosts.txt"))
    document = json.loads(capsys.readouterr().out)
    assert described("doctor", document)
    assert set(document) == keys("doctor")
    assert set(document["hosts"]) == {f"h{i}" for i in range(7)}
    for facts in document["hosts"].values():
        assert set(facts) == keys("doctor", "properties", "hosts", "additionalProperties")
    expected_kinds = {
        "unreachable",
        "MTU mismatch",
        "closed",
        "no kernel timestamps",
        "clock source",
        "governor",
        "tainted",
        "clock offset",
    }
    assert expected_kinds | {"slow host", "unmeasured"} <= {row["kind"] for row in document["findings"]}
    assert complaints("doctor", document | {"ok": True})
    assert complaints("doctor", document | {"ok": False, "findings": []})
    document["hosts"]["h0"]["mtu"] = "9000"
    assert complaints("doctor", document) == ["$.hosts.h0.mtu"]


def test_a_host_that_reports_no_facts_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    """What a document cannot say is refused in one line; keys that it does not know are left out."""
    (tmp_path / "hosts.txt").write_text("".join(f"h{i} address=10.0.0.{i}\n" for i in range(8)))
    monkeypatch.setattr("plink.features.diagnose.run.connector_for", lambda hosts, accept: None)
    for facts, refusal in (({"kernel": 6}, r"^h\d: kernel: expected text, got 6$"), ({"colour": "green"}, None)):
        fleet = Examined(**facts)
        monkeypatch.setattr("probes.session.Fleet", lambda connector, program, fleet=fleet: fleet)
        if refusal:
            with pytest.raises(InputError, match=refusal):
                plink.examine(plink.read_hosts(tmp_path / "hosts.txt"))
        else:
            examination = plink.examine(plink.read_hosts(tmp_path / "hosts.txt"))
            assert described("doctor", examination.to_json())
            assert "colour" not in examination.to_json()["hosts"]["h0"]


def test_kinds_of_findings_are_those_of_the_source() -> None:
    root = FOLDER.parents[1]
    calls = [
        node
        for path in (
            "plink/features/diagnose/run.py",
            "plink/features/order/interfaces.py",
            "solvers/diagnosis/findings.py",
        )
        for node in ast.walk(ast.parse((root / path).read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding"
    ]
    kinds = {ast.literal_eval(call.args[0]) for call in calls}
    schema = json.loads((FOLDER / "doctor.schema.json").read_text())
    assert kinds == set(schema["properties"]["findings"]["items"]["properties"]["kind"]["enum"])


def test_a_lab(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> None:
    """Where it needs root: what the kernel is asked is answered here. An uplink is cut, a host dead, one unlimited."""
    from runners.lab import kernel, state

    def shown(argv: list[str]) -> str:
        names = ["up0", "r0", "r1", "h0", "h1"]
        if argv[0] == "ip":
            return json.dumps([{"ifname": name, "flags": ["UP"] if name != "r1" else []} for name in names])
        rows = [{"kind": "tbf", "dev": name, "options": {"rate": 25_000_000}} for name in names if name != "h1"]
        return json.dumps([*rows, {"kind": "noqueue", "dev": "h1", "options": {}}])

    monkeypatch.setattr(state, "LABS", tmp_path)
    monkeypatch.setattr(state, "need_root", lambda what: None)
    monkeypatch.setattr(kernel, "query", shown)
    monkeypatch.setattr(kernel, "pids", lambda namespace: [7])
    stands = state.LabState("lab")
    stands.begin()
    stands.finish(draw(LabSettings("lab", racks=2, hosts_per_rack=2)))
    stands.file("node-01", "sshd.pid").write_text("7\n")
    document = printed(capsys, "lab", "status")
    assert described("lab", document)
    for part in ("links", "hosts"):
        assert {key for row in document[part] for key in row} == keys("lab", "properties", part, "items")
    assert {row["rate"] for row in document["hosts"]} == {200_000_000, 0}
    assert [row["connected"] for row in document["links"]] == [True, False]
    assert [row["alive"] for row in document["hosts"]] == [True, False, False, False]
    assert complaints("lab", document | {"hosts": []}) == ["$.hosts"]


def test_a_replay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of a job that was tuned; and of a log in which somebody wrote."""
    job, _ = tuned(tmp_path)
    document = printed(capsys, "runs", "replay", str(job.path))
    assert described("autotune-replay", document)
    assert document["as_logged"]
    row = document["stretches"][0]
    assert set(row) == keys("autotune-replay", "properties", "stretches", "items")
    assert {"watch", "quicktune", "finetune"} <= {row["action"] for row in document["stretches"]}
    head, first, *_ = job.path.read_text().splitlines()
    line = json.loads(first)
    del line["at_s"]
    job.path.write_text("\n".join([head, json.dumps(line), json.dumps(line | {"epoch": 9}), ""]))
    with pytest.raises(PlinkError, match="was decided then, wait now"):
        printed(capsys, "runs", "replay", str(job.path))
    document = json.loads(capsys.readouterr().out)
    assert described("autotune-replay", document)
    assert [(row["at_s"], row["as_logged"]) for row in document["stretches"]] == [(None, True), (None, False)]
    assert document["stretches"][1]["imbalance"] is None
    odd = document | {"stretches": [row | {"action": "sleep"}]}
    assert complaints("autotune-replay", odd) == ["$.stretches[0].action"]


def seen(job: SimulatedJob) -> list[Document]:
    """How a job stands every tenth of a second, as its controller says it."""
    documents: list[Document] = []

    def look() -> None:
        if job._controller is not None:
            documents.append(status(job._controller.state, job.now))
        if job.ended is None:
            job.later(0.1, look)

    job.later(0.0, look)
    job.run()
    return documents


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Document]:
    """Of a job that goes up to stage 3 and down again, is given another controller, and keeps checkpoints."""
    checkpoint_folder = str(tmp_path_factory.mktemp("kept"))
    settings = {"backup_only": 2.0, "checkpoints": checkpoint_folder, "checkpoint_every_s": 0.0}
    job = SimulatedJob(1, "r", clocks=80, settings=settings)

    def come(tiers: str) -> None:
        job.join(tiers, bulk=True)

    job.later(1.0, lambda: come("tt"))
    job.later(1.6, lambda: come("t"))
    job.later(2.1, job.kill_controller)
    job.later(4.2, lambda: job.warn([1, 2, 3], 1.5))
    return seen(job)


def test_job_status(
    stages: list[Document], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    """At every moment; and as the command prints it, that asks where the run listens."""
    monkeypatch.chdir(tmp_path)
    Record(workspace.RUNS / "0a1b", {"started": "2026-01-02"})
    for stage in stages:
        assert described("elastic-status", {"schema": "plink.elastic-status/1", "run": "0a1b", **stage})
    assert {status["stage"] for status in stages} == {None, 1, 2, 3}
    hosts = [host for status in stages for host in status["hosts"]]
    assert {host["state"] for host in hosts} == {"there", "joining", "leaving"}
    assert {key for host in hosts for key in host} == keys("elastic-status", "properties", "hosts", "items")
    assert any(host["replicas"] for host in hosts)
    assert {status.get("controller") for status in stages} >= {1, 2}
    assert any(status.get("checkpoint") is not None for status in stages)
    last = stages[-1] | {"cost": {"total": 0.5, "per_iteration": None, "without_price": ["h1"]}}
    control_socket = ControlSocket(lambda request, answer: answer(last))
    try:
        write_document(workspace.RUNS / "0a1b" / "elastic.json", {
            "schema": "plink.elastic-job/1", "socket": control_socket.name, "pid": 1, "lab": None, "runner": "local",
        })  # fmt: skip
        document = printed(capsys, "elastic", "status", "last")
    finally:
        control_socket.close()
    assert described("elastic-status", document)
    assert set(document) == keys("elastic-status") - {"spot"}  # only of a run with rented hosts
    assert complaints("elastic-status", document | {"stage": 4}) == ["$.stage"]
    assert complaints(
        "elastic-status", document | {"cost": {"total": -1, "per_iteration": None, "without_price": []}}
    ) == ["$.cost.total"]
    assert complaints("elastic-status", document | {"stage": None}) == ["$.hosts"]
    del document["begun"]
    assert complaints("elastic-status", document) == ["$"]
