"""The DDP example leaves no thread of Gloo behind: one that holds a tensor when Python ends aborts the process."""

import json
import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent
_PROGRAM = """
import sys
from pathlib import Path

sys.argv[1:] = ["--steps", "1", "--batch", "1", "--width", "2"]
import ddp_vgg
import torch.distributed as dist

def gloo_threads():
    names = [entry.read_text() for entry in Path("/proc/self/task").glob("*/comm")]
    return sum("gloo_runloop" in name for name in names)

destroy, before = dist.destroy_process_group, []

def counted():
    before.append(gloo_threads())
    destroy()

dist.destroy_process_group = counted
ddp_vgg.main()
print(before[0], gloo_threads())
"""


def test_the_threads_of_the_group_end_with_it() -> None:
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    path = os.pathsep.join([str(_ROOT / "examples"), str(_ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **alone, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    report, threads = done.stdout.splitlines()
    assert json.loads(report)["same_weights"]
    before, after = map(int, threads.split())
    assert before > 0
    assert after == 0
