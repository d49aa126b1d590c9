"""Inputs that fuzzing begins with: good ones of every kind, as their writers make them."""

import base64
import gzip
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
from msgspec import structs

from plink.model.hosts import render_hosts
from plink.model.network import Network
from plink.model.order import RankOrder
from tests.networks import details_from


def _json(*documents: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(document).encode() for document in documents)


def _lines(*documents: Any) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


@cache
def seeds() -> dict[str, Sequence[bytes]]:
    """By target."""
    from tests.fuzz.job_peers import a_job
    from tests.fuzz.lines import TOKEN
    from tests.fuzz.targets import THREE
    from tests.model import topologies as written

    latency = np.array([[0.0, 50.0, 90.5], [51.0, 0.0, np.nan], [90.0, 70.0, 0.0]])
    details = {
        "halves_us": [[[0, 1, 2]] * 3] * 2,
        "hops": [[0, 1, 2]] * 3,
        "machines": [None] * 3,
        "loss_forward": None,
    }
    network = Network(THREE, latency, latency / 1000, details_from(details)).to_json()
    order = RankOrder(
        algo="ring",
        hosts=("b", "a", "c.x.org"),
        cost=12.5,
        lower_bound=10.0,
        baseline={"environment": 20.0},
        objective="latency",
        seed=3,
        network="sha256:1",
    ).to_json()
    groups = {"schema": "plink.groups/1", "groups": [["a", "b"], ["c.x.org"]]}
    topologies = [written.AWS, written.GCP, written.TOPOGRAPH, json.dumps(written.KUBERNETES), written.TREE]
    topologies += [written.BLOCKS, written.YAML]
    truth = {"schema": "plink.truth/1", "positions": {"a": ["west", 1], "b": "r2"}}
    run = {
        "schema": "plink.run/1", "id": "one", "started": "2026-01-01T00:00:00", "hosts": network["hosts"], "lab": None,
        "program": "train.py", "args": ["-n", "3"], "env": {"A": "1"}, "machines": {"a": {"hostname": "a"}},
        "exit_code": 3, "seconds": 4.5, "proof": {"ranks": [{"rank": 0, "host": "a", "hostname": "a", "wrong": None}]},
        "failure": {"rank": 0, "host": "a", "last_lines": ["why"]}, "logs": "logs",
    }  # fmt: skip
    check = {
        "schema": "plink.check/1",
        "runs": [{"order": "environment", "predicted_us": 910, "achieved_s": [0.51, 0.5]}],
    }
    demo = {"schema": "plink.demo/1", "predicted_baseline_s": 1, "baseline_samples_s": [1, 2], "predicted_plink_s": 1.5,
            "plink_samples_s": [0.5]}  # fmt: skip
    embedding = {"schema": "plink.embedding/1", "hosts": ["a", "b"], "coordinates": [[0.5, 1], [2, 3]],
                 "alpha": 2.0, "held_out_error": 0.1, "fitted_us": [[0, 5], [5, 0]]}  # fmt: skip
    answer = {"sent": 2, "received": 2, "reflected": 2, "percentiles_us": [1, 2, 3, 4.5, 5], "halves_us": [2, None],
              "jitter_us": 0.5, "hops": 3, "clock": "kernel", "clock_steps": 0, "port": 7, "gbps": 2.5}  # fmt: skip
    registration = {"name": "a", "hostname": "h", "addresses": ["10.0.0.1"], "pid": 1, "digest": "d", "nodes": 2,
                    "processes": 1, "error": None}  # fmt: skip
    stretch = {
        "epoch": 0,
        "jobs": 1,
        "bytes": 1 << 20,
        "seconds": 0.5,
        "seen": [[0, 1, 1e6, 0.1, 1e-4], [5, 4, 1e5, 2, 1]],
    }
    report = {"end": {"streams": [{"sender": {"min_rtt": 50}}], "sum_received": {"bits_per_second": 1e9},
                      "sum_sent": {"retransmits": 0}}}  # fmt: skip
    schedules = _schedules()
    return {
        "hosts": (render_hosts(THREE).encode(), b"# plink-lab: l\nann@x slots=2 port=22 key=~/.k # fast\n"),
        "network": _json(network),
        "compared": _json(_measured()),
        "order": (*_json(order), b"a\nb\nc.x.org\n"),
        "groups": (*_json(groups), b"a, b # rack\nc.x.org\n"),
        "plan": _json(*_plans()),
        "schedule": _json(*schedules),
        "aggregation": _json(
            *_plans(),
            {
                "schema": "plink.aggregation/2",
                "classes": [
                    {"up_to_bytes": 1000, "algo": "gloo", "schedule": None},
                    {"up_to_bytes": None, "algo": "ring", "schedule": schedules[0]},
                ],
            },
        ),
        "topology": [text.encode() for text in topologies],
        "truth": (*_json(truth, groups), b"a b\nc.x.org\n", *(text.encode() for text in topologies[-2:])),
        "compressed": [gzip.compress(text) for text in _json(network, order)],
        "elastic_log": (_elastic_log(),),
        "autotune_log": (_autotune_log(stretch),),
        "run": _json(run),
        "shown_runs": _json(run),
        "check": _json(check, demo),
        "embedding": _json(embedding),
        "quantities": (b"64KiB", b"200mbit", b"1.5h", b" 10 Gbps "),
        "checkpoint": _partition(),
        "latest_checkpoint": _json({"clock": 3, "partitions": 2, "folder": "clock-3-a1"}),
        "lab": _json(_lab()),
        "known_hosts": (
            b"a,b ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHYYxTTvBFTjfDPdVBDhFjyHhFbsd5dUpyvbZvNqGgiT c\n"
            b"@revoked * ssh-ed25519 AAAA\n|1|abc=|def= ssh-rsa AAAA\n",
        ),
        "ssh_config": (
            b"Host a\n  HostName 10.0.0.1\n  Port 2222\n  User ann\n  ProxyJump j1,j2:22\n  IdentityFile ~/.ssh/k\n"
            b"Host *\n  ProxyCommand nc %h %p\n  UserKnownHostsFile ~/.k\nMatch host b\n  Port 3\n",
        ),
        "iperf3": _json(report, {"error": "no"}),
        "figure": (b'{"step_s": [1, 2]}\n', b"epoch 1 loss 0.5\n"),
        "launched": (_launched(registration),),
        "environment": (base64.b64encode(zlib.compress(json.dumps({"A": "b"}).encode())),),
        "stamp": _stamp(),
        "probe_agent": (_lines(*[answer] * 6), _lines(answer | {"percentiles_us": [None] * 5}, *[{"error": "no"}] * 4)),
        "probe_controller": (_lines({"method": "alive"}, {"method": "pair", "task": 1}),),
        "tuning": (_lines(stretch, stretch | {"seconds": 2.0}, stretch),),
        "message": _partition(),
        "registration": _json(registration),
        "replacement": _replacement(),
        "squeue": (b" 12\n7 \n",),
        "job_agents": _job_agents(),
        "nodes": (a_job(), HELLO),
        "flow": (TOKEN + b"x" * 100,),
        "metadata": (_metadata(),),
        "help_messages": _json(
            {"type": "request", "sender": 3, "id": 7, "generation": 0, "clock": 5, "state": 4, "grains": [[1, 2]]},
            {"type": "report", "sender": 0, "generation": 0, "clock": 5, "done": 0.75},
            {
                "type": "completed",
                "sender": 1,
                "id": 7,
                "generation": 0,
                "clock": 5,
                "grains": [[1, 2]],
                "scores": [[0.5, 2.0]],
            },
            {"type": "returned", "sender": 1, "id": 7, "grains": []},
            {"type": "begun", "sender": 1, "id": 7},
        ),
        **_at_listeners(stretch),
    }


def _measured() -> dict[str, Any]:
    """A network with all that a probe may say of it."""
    from tests.fuzz.targets import THREE

    latency = np.array([[0.0, 50.0, 90.5], [51.0, 0.0, 60.0], [90.0, 70.0, 0.0]])
    rows = latency.tolist()
    shared = {
        "members": ["a", "b"],
        "out_gbps": 4.0,
        "in_gbps": 3,
        "confidence": 0.9,
        "interval": {"out_gbps": [3.9, 4.1]},
    }
    details = {
        "measured_at": "2026-11-24T12:00:00", "plan": "all", "halves_us": [rows, rows], "hops": [[0, 1, 2]] * 3,
        "methods": ["", "stamp"], "method_used": [[0, 1, 1]] * 3,
        "clocks": ["", "kernel"], "clock_used": [[0, 1, 1]] * 3,
        "loss_forward": [[0, 0.1, 0]] * 3, "loss_back": [[0, 0, 0.5]] * 3, "samples": [[0, 100, 50]] * 3,
        "machines": [{"hostname": "a", "address": "10.0.0.1"}, None, {"hostname": "c"}],
        "shared_links": [{"confidence": 0.9, "groups": [shared]}],
        "errors": [{"from": "a", "to": "b", "why": "a firewall"}],
    }  # fmt: skip
    return Network(THREE, latency, latency / 10, details_from(details)).to_json()


def _at_listeners(stretch: dict[str, Any]) -> dict[str, Sequence[bytes]]:
    from plink.runtime.allreduce.eager import _MESSAGE
    from plink.runtime.allreduce.mesh import _GREETING
    from tests.fuzz import listeners

    rooms = [(signature, b"x" * (4 * (signature % 16 + 1))) for signature in (4, 5, 1 << 26)]
    comes = [_GREETING.pack(listeners.WORD, *who) for who in (*listeners.RANKS, (1, 0), (7, 1))]
    return {
        "listener": (listeners.calls(*comes), listeners.calls(b"", comes[0][:20], b"x" * 24)),
        "short_message": (b"".join(_MESSAGE.pack(signature, len(body)) + body for signature, body in rooms),),
        "gate": (
            listeners.calls(b"token 1\n", b"token 3\n"),
            listeners.calls(b"token 1\ntoken 2\n", b"", b"GET / HTTP/1.1\r\n"),
        ),
        "pods": (
            b"\n".join([listeners.pod(0), listeners.pod(0), listeners.pod(1)]),
            listeners.pod(1).replace(b"[]", b'["no room"]'),
        ),
        "control_request": _json({"do": "status"}, {"do": "add", "hosts": [{"name": "c"}], "bulk": False}),
        "handshake": (bytes.fromhex("160301003d010000390303") + b"r" * 32 + bytes.fromhex("000002130101000000"),),
        "records": (listeners.sealed(),),
        "worker": (_lines({"rank": 0, "pid": 7, "hostname": "h"}, {"code": 3}),),
        "rank_line": (_lines({"is": "iteration"}, stretch),),
        "node_messages": (_lines({"do": "open", "partition": 3}, {"do": "bye"}),),
        "first_rank_messages": (_lines({"epoch": 1, "plan": None}, {"epoch": 2, "plan": {}}),),
    }


def _schedules() -> list[dict[str, Any]]:
    from solvers.schedules.catalogue import Options, schedule_for

    ring = schedule_for("ring", 4, Options()).to_json()
    plain = {key: value for key, value in ring.items() if key != "transfers"}
    rounds = [{key: value for key, value in row.items() if key != "after"} for row in ring["transfers"]]
    return [plain | {"transfers": rounds}, ring]


def _plans() -> list[dict[str, Any]]:
    from plink.model.plan import Plan, PlannedMasters
    from plink.model.schedule_file import schedule_from_json
    from tests.fuzz.targets import THREE

    two = type(THREE)(THREE.members[:2])
    order = RankOrder(algo="ring", hosts=tuple(two.names))
    masters = PlannedMasters(local_ranks=[[0, 2], [1, 3]], global_ranks=[0, 3])
    ring = schedule_from_json(_schedules()[0], "ring")
    plain = Plan(algo="two-level", model="latency", size_bytes=1e6, order=order, host_entries=two.entries(), chunks=2)
    return [
        structs.replace(
            plain,
            algo="ring",
            chunks=ring.chunks,
            cost_us=5.0,
            least_time_us=4.0,
            baseline_us={"environment": 7.0},
            schedule_file=ring.file(with_waits=False),
        ).to_json(),
        structs.replace(plain, groups=((0, 1), (2, 3)), masters=masters).to_json(),
    ]


def _elastic_log() -> bytes:
    from plink.records.elastic_log import SCHEMA

    common = {"host": "a", "number": 1, "tier": "reliable", "slots": 1}
    step = {"what": "iteration", "seconds": 0.5, "stage": 1, "workers": 2}
    return _lines(
        {"at": 0, "what": "log", "schema": SCHEMA},
        {"at": 0.1, "what": "host", "event": "joined", **common, "price": 0.5},
        {"at": 0.2, "what": "stage", "stage": 1},
        {"at": 1, **step, "iteration": 0, "clock": 1, "objective": -3.5},
        {"at": 2, "what": "rolled back", "clock": 0, "generation": 1, "redone": 1},
        {"at": 3, **step, "iteration": 0, "clock": 1, "objective": None},
        {"at": 3, "what": "objective", "iteration": 0, "objective": 0.5},
        {"at": 3, "what": "traffic", "host": "a", "sent": 5, "received": 6},
        {"at": 4, "what": "host", "event": "failed", **common},
        {"at": 5, "what": "end", "seconds": 5, "code": 0},
    )


def _autotune_log(stretch: dict[str, Any]) -> bytes:
    from dataclasses import asdict

    from runners.autotune.daemon import SCHEMA, assignment_to_json
    from solvers.autotune.trajectory import AutotuneSettings
    from tests.solvers.ranks_on_paper import GROUPS, equal_assignment

    head = {
        "schema": SCHEMA,
        "hosts": ["n"] * 16,
        "settings": asdict(AutotuneSettings()),
        **assignment_to_json(equal_assignment(GROUPS, 16)),
    }
    return _lines(head, *({"at_s": float(k), **stretch, "action": "watch", "reason": ""} for k in range(3)))


def _partition() -> tuple[bytes, ...]:
    from plink.runtime.elastic.arrays.row_blocks import RowBlock
    from plink.runtime.elastic.partition.partition import Partition
    from plink.runtime.elastic.partition.serialization import parts_of
    from plink.runtime.elastic.transport.wire import send
    from tests.fuzz.targets import _layout
    from tests.runtime.elastic.test_wire import Pipe

    layout, pipe = _layout(), Pipe()
    partition = Partition(layout, 0, history=True)
    partition.admit({0: 0, 1: 0})
    partition.update(0, 0, 0, True, (RowBlock(0, range(2), np.ones((2, 3), dtype=np.float32)),))
    for part in parts_of(partition):
        send(pipe, part, layout)
    return (pipe.content,)


def _lab() -> dict[str, Any]:
    from runners.lab.blueprint import LabSettings, draw

    return asdict(draw(LabSettings("a", racks=1, hosts_per_rack=2)))


def _launched(report: dict[str, Any]) -> bytes:
    from runners.launchers.frames import ERR, EXIT, OUT, REPORT, encode_frame

    message = [
        encode_frame(REPORT, json.dumps({"rank": 0} | report).encode()),
        encode_frame(OUT, b"[hello]\n"),
        encode_frame(ERR, b"x\n"),
    ]
    message.append(encode_frame(EXIT, json.dumps({"code": 3, "last_lines": ["x"]}).encode()))
    return b"".join(b"0: " + item for item in message) + b"srun: error: n: task 4: Exited with exit code 7\n"


def _stamp() -> tuple[bytes, ...]:
    from probes.reflector import pack_sender, reflect
    from probes.stamp import Key
    from probes.stamp import pack_sender as signed

    plain = pack_sender(1, 2, 3)
    return plain, plain + b"tlv", reflect(plain, 1, 2, 3) or b"", signed(Key(b"k2"), 1, 2, 3)


def _replacement() -> tuple[bytes, ...]:
    from plink.model.schedule_file import schedule_from_json
    from plink.runtime.allreduce.aggregation import Aggregation, SizeClass

    ring = schedule_from_json(_schedules()[0], "ring")
    return (Aggregation((SizeClass(None, "ring", ring),)).to_bytes(),)


def _job_agents() -> tuple[bytes, ...]:
    """Of a job that goes well, and of one whose rank fails."""
    from tests.fuzz.job_peers import answers

    words: list[dict[str, Any]] = [
        {"method": method} for method in ("begin", "has_digest", "extract", "set_up", "open_listener")
    ]
    words += [{"method": "close_listener"}, {"method": "start", "ranks": [{"rank": 0}, {"rank": 1}]}, {"method": "go"}]
    message = [answer for word in words for answer in answers(0, word)]
    return (
        _lines(*message, {"type": "exited", "rank": 1, "code": 0}),
        _lines(*message, {"type": "line", "text": "{}"}, {"type": "exited", "rank": 1, "code": 3}, {"type": "stacks"}),
        _lines(*message, {"type": "stopped", "ranks": [1, 99]}, {"type": "exited", "rank": 0, "code": 1}),
        _lines(*message[:4], {"type": "failed", "error": "no"}),
    )


HELLO = b"0 " + _lines(
    {"type": "hello", "version": 9, "plink": "1", "app": "A", "pid": 1, "tables": 5, "shards": 3, "batches": 1,
     "grains": 1, "shapes": [[9, 8], [3, 9]], "memory": None, "pool": "", "optimisers": [], "float_tables": 2}
)  # fmt: skip


def _metadata() -> bytes:
    """One answer after the other: AWS twice, GCP twice, Azure three times."""

    def answer(text: str, date: str = "Mon, 18 Sep 2017 08:20:00 GMT") -> bytes:
        return f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()

    action = json.dumps({"action": "terminate", "time": "2017-09-18T08:22:00Z"})
    event = {"EventId": "1", "EventType": "Preempt", "EventStatus": "Scheduled", "Resources": ["vm"],
             "NotBefore": "Mon, 18 Sep 2017 08:20:20 GMT"}  # fmt: skip
    answers_ = [answer("token"), answer(action), answer(action), answer("FALSE"), answer("TRUE"), answer("vm")]
    return b"\0".join([*answers_, *[answer(json.dumps({"Events": [event]}))] * 2])
