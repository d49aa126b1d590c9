"""What the kernel says of this host's memory: the machine's, and what control groups leave of it."""

from pathlib import Path

import pytest

from plink.runtime.elastic.host.memory_limits import memory

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A file system of one with 64 GiB that are free, and no control groups."""
    write(tmp_path / "proc/sys/kernel/random/boot_id", "b-1\n")
    write(tmp_path / "proc/meminfo", f"MemTotal: 99 kB\nMemFree: 1 kB\nMemAvailable: {64 * GIB >> 10} kB\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def group(folder: Path, limit: str, used: int, idle: int = 0) -> str:
    """A control group of version 2, and the pool that hosts within share."""
    write(folder / "memory.max", f"{limit}\n")
    write(folder / "memory.current", f"{used}\n")
    write(
        folder / "memory.stat",
        f"anon 7\ninactive_file {idle // 4}\nactive_file {idle // 4}\nslab_reclaimable {idle // 2}\n",
    )
    return f"b-1/{folder.stat().st_ino}"


def measured(root: Path) -> tuple[int, str]:
    message = memory(root)
    assert message is not None
    return message.available, message.pool


def test_without_limits_it_is_what_the_machine_has(machine: Path) -> None:
    assert measured(machine) == (64 * GIB, "b-1")
    write(machine / "proc/self/cgroup", "0::/user.slice\n")
    group(machine / "sys/fs/cgroup/user.slice", "max", GIB)
    assert measured(machine) == (64 * GIB, "b-1")


def test_parent_cgroup_limit_counts_used_and_reclaimable_memory(machine: Path) -> None:
    """As of a Slurm job, in whose group each step has one of its own without a limit."""
    write(machine / "proc/self/cgroup", "0::/slurm/job_1/step_0\n")
    job = machine / "sys/fs/cgroup/slurm/job_1"
    group(job / "step_0", "max", GIB)
    pool = group(job, str(8 * GIB), 3 * GIB, GIB)
    assert measured(machine) == (6 * GIB, pool)
    assert measured(machine)[1] != group(machine / "sys/fs/cgroup/slurm", str(100 * GIB), GIB)
    group(job, str(8 * GIB), 9 * GIB)
    assert measured(machine) == (0, pool)


def test_the_limit_of_a_container_that_sees_another_path(machine: Path) -> None:
    """Its own group is what is mounted, whatever the path says."""
    write(machine / "proc/self/cgroup", "0::/kubepods/pod-1/c-1\n")
    pool = group(machine / "sys/fs/cgroup", str(2 * GIB), GIB)
    assert measured(machine) == (GIB, pool)


def test_the_limit_of_a_group_of_version_1(machine: Path) -> None:
    write(machine / "proc/self/cgroup", "9:cpu,cpuacct:/other\n4:memory:/docker/c-1\n0::/\n")
    folder = machine / "sys/fs/cgroup/memory/docker/c-1"
    write(folder / "memory.limit_in_bytes", str(5 * GIB))
    write(folder / "memory.usage_in_bytes", str(2 * GIB))
    write(folder / "memory.stat", f"inactive_file 1\ntotal_inactive_file {GIB // 2}\ntotal_active_file {GIB // 2}\n")
    write(machine / "sys/fs/cgroup/memory/memory.limit_in_bytes", str((1 << 63) - 4096))  # none
    write(machine / "sys/fs/cgroup/memory/memory.usage_in_bytes", "1")
    assert measured(machine) == (4 * GIB, f"b-1/{folder.stat().st_ino}")


def test_where_nobody_says_nothing_is_known(tmp_path: Path) -> None:
    assert memory(tmp_path) is None
    write(tmp_path / "proc/meminfo", "MemAvailable: many\n")
    assert memory(tmp_path) is None
    write(tmp_path / "proc/meminfo", "MemAvailable: 4 kB\n")
    assert measured(tmp_path) == (4096, "")


def test_this_machine_says_something() -> None:
    message = memory()
    assert message is not None
    assert 0 < message.available < 1 << 50
