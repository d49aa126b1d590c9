"""`plink launch`: which rank runs where, with which environment and arguments, and what is seen of it."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Lab, plink
from tests.lab.jobs import Running, write_hosts, write_script

pytestmark = pytest.mark.lab

TELL = """
import json, os, sys
ours = ("RANK", "LOCAL_", "WORLD_", "GROUP_", "MASTER_", "GLOO_", "NCCL_", "OMP_", "MY_")
keys = [k for k in os.environ if k.startswith(ours)]
print(json.dumps({"host": os.uname().nodename, "env": {k: os.environ[k] for k in keys}, "args": sys.argv[1:],
                  "cwd": os.getcwd(), "file": __file__}))
"""


def ranks_printed(text: str) -> list[dict[str, object]]:
    """What every rank printed, in rank order; each line must bear its rank."""
    rows = {}
    for line in text.splitlines():
        prefix, _, body = line.partition("] ")
        rank = int(prefix.removeprefix("["))
        assert rank not in rows
        rows[rank] = json.loads(body)
    return [rows[rank] for rank in range(len(rows))]


def test_the_environment_is_torchruns(small_lab: Lab, tmp_path: Path) -> None:
    """Two slots a host: ranks in blocks, and every variable that PyTorch's env:// and Gloo read."""
    write_hosts(small_lab, tmp_path, slots=2)
    order = list(reversed(small_lab.hosts.names))
    (tmp_path / "order.txt").write_text("\n".join(order) + "\n")
    script = write_script(tmp_path, TELL)
    words = ("launch", "--hosts", "hosts.txt", "--order", "order.txt", "--env", "MY_NAME=a b=c", script)
    done = plink(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ranks = ranks_printed(done.stdout)
    assert [rank["host"] for rank in ranks] == [host for host in order for _ in range(2)]
    master = small_lab.hosts.by_name()[order[0]].address
    ports = set()
    for rank, printed in enumerate(ranks):
        env = printed["env"]
        assert isinstance(env, dict)
        port = env.pop("MASTER_PORT")
        ports.add(port)
        assert 1024 <= int(port) < 65536
        assert env == {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank % 2),
            "WORLD_SIZE": "8",
            "LOCAL_WORLD_SIZE": "2",
            "GROUP_RANK": str(rank // 2),
            "GROUP_WORLD_SIZE": "4",
            "MASTER_ADDR": master,
            "GLOO_SOCKET_IFNAME": "eth0",
            "NCCL_SOCKET_IFNAME": "=eth0",
            "OMP_NUM_THREADS": "1",
            "MY_NAME": "a b=c",
        }
    assert len(ports) == 1
    assert {rank["cwd"] for rank in ranks} == {str(tmp_path)}


def test_streams_lines_and_bytes(small_lab: Lab, tmp_path: Path) -> None:
    """stdout to stdout, stderr to stderr, each line with its rank; a last line without an end; bytes as they were."""
    write_hosts(small_lab, tmp_path, names=small_lab.hosts.names[:2])
    text = (
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint(flush=True)\n"
        "sys.stdout.buffer.write('caf\u00e9 '.encode() + bytes([255]) + b' end')\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "plink",
            "launch",
            "--hosts",
            "hosts.txt",
            "--order",
            "given",
            write_script(tmp_path, text),
        ],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        prefix = f"[{rank}] ".encode()
        lines = [line.removeprefix(prefix) for line in done.stdout.split(b"\n") if line.startswith(prefix)]
        assert lines == [b"out", b"", b"caf\xc3\xa9 \xff end"]
        assert prefix + b"err" in done.stderr.split(b"\n")


def test_output_is_shown_when_it_is_printed(small_lab: Lab, tmp_path: Path, start: Callable[..., Running]) -> None:
    """A rank that prints and then works is seen to have printed."""
    write_hosts(small_lab, tmp_path)
    running = start(
        "launch",
        "--hosts",
        "hosts.txt",
        "--order",
        "given",
        write_script(tmp_path, "import time\nprint('begun')\ntime.sleep(60)"),
    )
    assert sorted(running.await_lines(4, "begun")) == [f"[{rank}] begun" for rank in range(4)]


def test_json_is_the_run_and_nothing_else(small_lab: Lab, tmp_path: Path) -> None:
    """With --json standard output holds `plink.run/1`; the ranks' output goes to stderr."""
    write_hosts(small_lab, tmp_path)
    done = plink("launch", "--hosts", "hosts.txt", "--order", "given", "--json", "hostname", cwd=tmp_path)
    document = json.loads(done.stdout)
    assert document["schema"] == "plink.run/1"
    assert document["exit_code"] == done.returncode == 0
    assert document["failure"] is None
    assert document["proof"]["held"] is True
    assert [row["hostname"] for row in document["proof"]["ranks"]] == small_lab.hosts.names
    assert [row["addresses"] for row in document["proof"]["ranks"]] == [[host.address] for host in small_lab.hosts]
    assert all(f"[{rank}] {host}" in done.stderr for rank, host in enumerate(small_lab.hosts.names))


def test_a_job_of_pytorch(small_lab: Lab, tmp_path: Path) -> None:
    """init_process_group() finds its peers by the environment alone, and an all-reduce is right."""
    write_hosts(small_lab, tmp_path)
    text = (
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "x = torch.ones(1000) * (dist.get_rank() + 1)\ndist.all_reduce(x)\nprint(x.sum().item())\n"
        "dist.destroy_process_group()\n"
    )
    done = plink("launch", "--hosts", "hosts.txt", "--order", "given", write_script(tmp_path, text), cwd=tmp_path)
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] 10000.0" for rank in range(4)], done.stderr


def test_a_program_gets_the_signals_a_shell_would_give_it(small_lab: Lab, tmp_path: Path) -> None:
    """No signal that Python can set is ignored or blocked in a rank: `yes | head -1` must end."""
    write_hosts(small_lab, tmp_path, names=small_lab.hosts.names[:1])
    done = plink(
        "launch",
        "--hosts",
        "hosts.txt",
        "--order",
        "given",
        "grep",
        "-E",
        "^Sig(Blk|Ign)",
        "/proc/self/status",
        cwd=tmp_path,
    )
    # Signals 32 and 33 are the C library's own: no process can set them through it, some machines hand them on ignored.
    masks = [int(line.split()[-1], 16) & ~(0b11 << 31) for line in done.stdout.splitlines()]
    assert masks == [0, 0], done.stdout
