"""A lab whose hosts share a GPU. Of NVIDIA's two programs there are stand-ins here; the rest is the lab's own."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import plink

pytestmark = pytest.mark.lab

# A daemon of the pipe folder that its environment names: it is there until somebody tells it to quit.
_CONTROL = """#!/bin/sh
cd "$CUDA_MPS_PIPE_DIRECTORY" || exit 1
if [ "$1" = -d ]; then
    [ -z "$REFUSES" ] || { echo "An instance of this daemon is already running" >&2; exit 1; }
    sleep 600 >/dev/null 2>&1 </dev/null &
    echo $! > pid
else
    read command && echo "$command" >> quit && kill "$(cat pid)"
fi
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both programs, first on the PATH; the GPU has 8 GB free."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("nvidia-cuda-mps-control", _CONTROL), ("nvidia-smi", "#!/bin/sh\necho 8000\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def up(name: str, *words: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    size = ("--racks", "1", "--hosts-per-rack", "2")
    return plink("lab", "up", "--name", name, *size, "--gpu", *words, cwd=cwd, **environment)


def test_programs_on_hosts_get_the_gpu_and_the_daemon_ends_with_the_lab(tools: Path, tmp_path: Path) -> None:
    name = f"g{os.getpid()}"
    program = tmp_path / "show.py"
    program.write_text("import os\nprint({k: v for k, v in os.environ.items() if k.startswith(('NCCL_', 'CUDA_'))})\n")
    try:
        assert up(name, cwd=tmp_path).returncode == 0
        (tmp_path / "hosts.txt").write_text(plink("lab", "hosts", "--name", name, cwd=tmp_path).stdout)
        folder = Path(f"/run/plink/labs/{name}/mps/pipe")
        daemon = int((folder / "pid").read_text())
        words = ["--hosts", "hosts.txt", "--order", "given"]
        launched = plink("launch", *words, str(program), cwd=tmp_path)
        inside = plink("lab", "exec", "--name", name, "node-02", "--", "sh", "-c", "echo $NCCL_HOSTID", cwd=tmp_path)
        assert inside.stdout == "node-02\n", inside.stderr
        for host in ("node-01", "node-02"):
            assert f"'NCCL_HOSTID': '{host}'" in launched.stdout, launched.stderr
        assert launched.stdout.count(f"'CUDA_MPS_PIPE_DIRECTORY': '{folder}'") == 2
        assert launched.stdout.count("'NCCL_NET': 'Socket'") == 2
        assert up(name, cwd=tmp_path).returncode == 0  # which is up, and left as it is
        assert int((folder / "pid").read_text()) == daemon
    finally:
        down = plink("lab", "down", "--name", name, cwd=tmp_path)
    assert down.returncode == 0
    assert not Path(f"/proc/{daemon}").exists() or b"sleep" not in Path(f"/proc/{daemon}/cmdline").read_bytes()
    assert not Path(f"/run/plink/labs/{name}").exists()


@pytest.mark.parametrize(
    ("breaks", "named"),
    [
        ("rm nvidia-smi", "no GPU"),
        ("rm nvidia-cuda-mps-control", "nvidia-cuda-mps-control is missing"),
        ("printf '#!/bin/sh\\necho No devices were found; exit 6\\n' > nvidia-smi", "No devices were found"),
        ("printf '#!/bin/sh\\necho 1000\\n' > nvidia-smi", "1 hosts at most"),
    ],
)
def test_a_machine_that_cannot_is_refused_in_a_line_and_nothing_stays(
    tools: Path, tmp_path: Path, breaks: str, named: str
) -> None:
    subprocess.run(["sh", "-c", breaks], cwd=tools, check=True)
    name = f"h{os.getpid()}"
    done = up(name, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert named in done.stderr
    assert not Path(f"/run/plink/labs/{name}").exists()


def test_a_daemon_that_does_not_start_is_named_and_the_lab_taken_away(tools: Path, tmp_path: Path) -> None:
    name = f"i{os.getpid()}"
    done = up(name, cwd=tmp_path, REFUSES="1")
    assert done.returncode == 1
    assert "already running" in done.stderr
    labs = json.loads(plink("lab", "status", "--name", name, "--json", cwd=tmp_path).stdout or "{}")
    assert labs == {}
    assert not Path(f"/run/plink/labs/{name}").exists()


def test_a_daemon_of_somebody_else_is_refused(tools: Path, tmp_path: Path) -> None:
    """It has the name that the kernel keeps of it: 15 characters."""
    (tools / "nvidia-cuda-mps").symlink_to("/bin/sleep")
    other = subprocess.Popen([tools / "nvidia-cuda-mps", "60"])
    try:
        done = up(f"j{os.getpid()}", cwd=tmp_path)
        assert done.returncode == 2
        assert f"process {other.pid}" in done.stderr
    finally:
        other.terminate()
        other.wait()


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="needs a GPU")
def test_nccl_between_hosts_is_timed_calibrated_and_verified(tmp_path: Path) -> None:
    """A real GPU: NCCL follows the order, and its times rise with what the model says of orders."""
    name = f"n{os.getpid()}"
    program = tmp_path / "train.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl', device_id=torch.device('cuda:0'))\n"
        "data = torch.ones(2_000_000, device='cuda:0')\n"
        "dist.all_reduce(data)\n"
        "assert data[0].item() == dist.get_world_size()\n"
        "dist.destroy_process_group()\n"
    )
    try:
        up_done = plink("lab", "up", "--name", name, "--racks", "2", "--hosts-per-rack", "2", "--gpu", cwd=tmp_path)
        assert up_done.returncode == 0, up_done.stderr
        (tmp_path / "hosts.txt").write_text(plink("lab", "hosts", "--name", name, cwd=tmp_path).stdout)
        assert plink("probe", "hosts.txt", "--count", "1000", cwd=tmp_path, timeout=120).returncode == 0
        words = ("--measure", "--calibrate", "--algo", "nccl-ring", "--orders", "4", "--repeats", "2", "--size", "8MB")
        checked = plink("check", *words, "--json", cwd=tmp_path, timeout=240)
        assert checked.returncode == 0, checked.stderr
        document = json.loads(checked.stdout)
        assert document["library_costs"][0]["algo"] == "nccl-ring"
        runs = document["checks"][0]["runs"]
        assert min(min(run["achieved_s"]) for run in runs) > 0.8 * 2 * 3 / 4 * 8e6 * 8 / 200e6
        assert plink("reorder", "--algo", "nccl-ring", cwd=tmp_path, timeout=120).returncode == 0
        launched = plink("launch", "--hosts", "hosts.txt", "--verify-nccl", str(program), cwd=tmp_path, timeout=120)
        assert launched.returncode == 0, launched.stderr
        assert "rings and trees follow the order" in launched.stderr
    finally:
        plink("lab", "down", "--name", name, cwd=tmp_path)
