"""Compile what searches of orders and plans of pipelines need, in processes that compute only while nothing else does.

``make setup`` starts them before it installs PyTorch, which they do not need: else each worker of the tests would
compile the same (half a minute for pipelines).
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
_HOSTS = (4, 12)  # searched exhaustively, and annealed
_GRAPH = (
    "".join(
        f"node{k} -- Layer{k} -- forward_compute_time=29, backward_compute_time=53, activation_size=1e6, "
        f"parameter_size={size}\n"
        for k, size in enumerate(("5e5", "5e5", "1.3e7"))
    )
    + "\tnode0 -- node1\n\tnode1 -- node2\n"
)


def compile_pipelines() -> None:
    """Plan a small model on few hosts and on more."""
    from plink.features.pipeline.plan import plan_pipeline
    from plink.features.pipeline.request import PipelineRequest
    from plink.model.pipeline.exports import profile_from_graph

    profile = profile_from_graph(_GRAPH, "graph.txt", 64)
    for number in _HOSTS:
        plan_pipeline(profile, PipelineRequest(hosts=number, gbps=(0.2,)))


def main() -> None:
    """Start both."""
    from plink.terminal.compilation_notice import compile_ahead

    if sys.argv[1:] == ["pipelines"]:
        compile_pipelines()
        return
    os.environ["PYTHONPATH"] = str(ROOT)  # plink is not installed yet
    compile_ahead()
    command = [sys.executable, "-m", "tools.compile_ahead", "pipelines"]
    quiet = subprocess.DEVNULL
    pipelines = subprocess.Popen(command, cwd=ROOT, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    with contextlib.suppress(AttributeError, OSError):  # not Linux
        os.sched_setscheduler(pipelines.pid, os.SCHED_IDLE, os.sched_param(0))


if __name__ == "__main__":
    main()
