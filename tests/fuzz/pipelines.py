"""Files of pipelines, checkpoints among them, and what their ranks report."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plink.model.pipeline.rank_report import CheckpointHeader

GRAPH = b"""\
node1 -- Input0 -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=0.0, parameter_size=0.000
node2 -- Conv2d(3, 64) -- forward_compute_time=10.0, backward_compute_time=20.0, activation_size=8.0, parameter_size=4
node3 -- Linear() -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=[8.0; 4], parameter_size=400
\tnode1 -- node2
\tnode2 -- node3
"""
PROFILE = {
    "schema": "plink.profile/1", "minibatch": 16, "tied": [["a.weight", "b.weight"]], "hosts": {"a": 1.5},
    "layers": [
        {"name": "a", "forward_s": 0.1, "backward_s": 0.2, "parameter_bytes": 400, "crossing_bytes": 64,
         "crossing": [{"shape": [4, 4], "dtype": "float32", "gradient": True, "from": "a"}]},
        {"name": "b", "forward_s": 0.1, "backward_s": 0.2, "parameter_bytes": 400, "crossing_bytes": 0},
    ],
}  # fmt: skip
REPORT = {
    "schema": "plink.pipeline-log/1", "type": "end", "plan": "abc", "rank": 1, "host": "b", "stage": 1, "replica": 0,
    "at_s": 10.0, "minibatches": 50, "minibatch_s": 0.1, "forward_s": 0.03, "wait_forward_s": 1.0, "sent_bytes": 10,
    "received_bytes": 10, "versions": 2, "loss": 0.5,
}  # fmt: skip


def profile(data: bytes) -> None:
    """``plink.profile/1``, and what a planner makes of it."""
    from plink.model.pipeline.profile import profile_from_json, read_profile
    from plink.model.storage import parse_document, render_document
    from solvers.pipeline.thesis import LayerCosts

    profile = read_profile(_file(data, "profile.json"))
    again = profile_from_json(parse_document(render_document(profile.to_json()), "again"), "again")
    assert again.digest() == profile.digest()
    assert len(LayerCosts.of(profile).seconds) == len(profile.layers) + 1


def pipeline(data: bytes) -> None:
    """``plink.pipeline/1``: read again, it is the same; what it is, is printed."""
    from plink.features.pipeline.show import plan_lines
    from plink.model.pipeline.plan import pipeline_from_json, read_pipeline
    from plink.model.storage import parse_document, render_document

    plan = read_pipeline(_file(data, "pipeline.json"))
    again = pipeline_from_json(parse_document(render_document(plan.to_json()), "again"), "again")
    assert again.to_json() == plan.to_json()
    plan_lines(plan)


def pipedream_graph(data: bytes) -> None:
    """``graph.txt`` of PipeDream's profiler."""
    from plink.model.pipeline.exports import read_pipedream_graph

    assert read_pipedream_graph(_file(data, "graph.txt"), 64).layers


def rank_report(data: bytes) -> None:
    """Lines of ``plink.pipeline-log/1`` among others."""
    from plink.model.pipeline.rank_report import table_of_reports
    from plink.records.pipeline_log import PipelineLog

    log = PipelineLog()
    folder = _file(b"", "pipeline.jsonl").parent
    for line in data.decode("utf-8", "replace").split("\n"):
        log.take("out", line, folder)
    table_of_reports(log.reports, 0.1)


def pipeline_checkpoint(data: bytes) -> None:
    """One rank's part of a checkpoint: its header and digest, and then what it has."""
    from plink.runtime.pipeline.checkpoint_file import read_checkpoint, read_header

    path = _file(data, "stage-0-replica-0.pt")
    read_header(path)
    read_checkpoint(path)


def _checkpoint() -> bytes:
    import torch

    from plink.runtime.pipeline.checkpoint_file import write_checkpoint

    path = _file(b"", "written.pt")
    header = CheckpointHeader(sha256="",
        minibatch=4, stage=0, replica=0, replicas=[1], training="ab", program="", model="cd",
        arguments="", start="ef", torch="2.13.0")  # fmt: skip
    write_checkpoint(path, header, {"parameters": {"a": torch.zeros(2)}, "versions": {3: {"a": torch.zeros(2)}}})
    return path.read_bytes()


def _file(data: bytes, name: str) -> Path:
    from tests.fuzz import targets

    return targets._file(data, name)


def documents() -> dict[str, Sequence[bytes]]:
    """By target, inputs to begin with."""
    from tests.runtime.pipeline.apps import plan_of

    plans: list[dict[str, Any]] = [
        plan_of([2, 1], 7).to_json() | {"predicted": {"minibatch_s": 0.1, "items_per_s": 40.0}, "idle": ["x"]},
        plan_of([1, 1], 7, kind="2bw", accumulate=4).to_json(),
        plan_of([1, 1], 7).to_json() | {"actions": [["1F0", "1B0", "1UPDATE0"], ["0F0", "0B0", "0UPDATE0"]]},
    ]
    return {
        "profile": [json.dumps(PROFILE).encode()],
        "pipeline": [json.dumps(plan).encode() for plan in plans],
        "pipedream_graph": [GRAPH],
        "pipeline_checkpoint": [_checkpoint()],
        "rank_report": [b"hello\n" + json.dumps(REPORT).encode() + b"\n"],
    }


EVERY = (profile, pipeline, pipedream_graph, rank_report, pipeline_checkpoint)
