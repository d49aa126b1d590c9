"""An order as the files that launchers read: every rank has its place, and what cannot be said is refused."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plink.errors import UsageError
from plink.model.hosts import Host, Hosts, parse_hosts
from plink.model.order import RankOrder, order_from_json
from runners.hostfiles import FORMATS, command, render

ORDER = RankOrder(algo="ring", hosts=("c", "a", "b"), cost=3.0, seed=1, model="latency")
HOSTS = Hosts((Host("c", "10.0.0.3"), Host("a", "10.0.0.1", slots=2), Host("b", "10.0.0.2")))
PAGE = (Path(__file__).parent.parent.parent / "docs" / "launchers.md").read_text()

_TORCHRUN = "torchrun --rdzv-backend=static --nnodes=3"
_MASTER = "--master-addr=10.0.0.3 --master-port=29500"
_ENV = "MASTER_ADDR=10.0.0.3 MASTER_PORT=29500"
EXPECTED = {
    "hosts": "c\na slots=2\nb\n",
    "openmpi": "10.0.0.3\n10.0.0.1\n10.0.0.1\n10.0.0.2\n",
    "openmpi-rankfile": (
        "rank 0=10.0.0.3 slot=0\nrank 1=10.0.0.1 slot=0\nrank 2=10.0.0.1 slot=1\nrank 3=10.0.0.2 slot=0\n"
    ),
    "mpich": "10.0.0.3:1\n10.0.0.1:2\n10.0.0.2:1\n",
    "slurm": "c\na\na\nb\n",
    "torchrun": (
        f'{_TORCHRUN} --node-rank=0 --nproc-per-node=1 {_MASTER} "$@"  # c\n'
        f'{_TORCHRUN} --node-rank=1 --nproc-per-node=2 {_MASTER} "$@"  # a\n'
        f'{_TORCHRUN} --node-rank=2 --nproc-per-node=1 {_MASTER} "$@"  # b\n'
    ),
    "torchrun-env": (
        f"RANK=0 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=0 {_ENV}  # c\n"
        f"RANK=1 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 {_ENV}  # a\n"
        f"RANK=2 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 {_ENV}  # a\n"
        f"RANK=3 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK=2 {_ENV}  # b\n"
    ),
    "deepspeed": "10.0.0.3 slots=1\n10.0.0.1 slots=2\n10.0.0.2 slots=1\n",
    "horovod": "10.0.0.3:1,10.0.0.1:2,10.0.0.2:1\n",
    "lightgbm": "10.0.0.3 12400\n10.0.0.1 12400\n10.0.0.1 12401\n10.0.0.2 12400\n",
    "kubernetes": "0 c\n1 a\n2 a\n3 b\n",
}


def test_every_format_is_expected_here() -> None:
    assert [*FORMATS] == ["order", *EXPECTED]
    assert all(form.name == name for name, form in FORMATS.items())


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_written_is_what_the_page_on_launchers_shows(name: str) -> None:
    assert render(name, HOSTS, ORDER) == EXPECTED[name]
    example = "".join(f"    {line}\n" for line in EXPECTED[name].splitlines())
    assert f"\n\n{example}" in PAGE
    assert re.search(rf"^## .*\b{name}$", PAGE, re.MULTILINE)
    use = command(name, "FILE", HOSTS)
    if use is not None and name not in ("kubernetes", "torchrun", "torchrun-env", "lightgbm"):
        assert f"`{use.split('   ')[0]}`" in PAGE


def test_an_order_is_what_plink_reads_back() -> None:
    assert order_from_json(json.loads(render("order", HOSTS, ORDER)), "o") == ORDER


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=20)
@given(
    st.lists(st.integers(1, 600), min_size=1, max_size=5), st.sampled_from(["10.0.{}.7", "n{}", "gpu-{}.a.b", "{}x"])
)
def test_what_is_written_is_read_back(name: str, slots: list[int], form: str) -> None:
    """Every format: the same hosts, in the same order, with as many slots; an order has none."""
    if name == "lightgbm":
        form = "10.0.{}.7"
    elif name in ("slurm", "openmpi", "openmpi-rankfile") and form != "n{}":
        form = "node-{}"
    labels = [form.format(number) for number in range(len(slots))]
    hosts = Hosts(tuple(Host(label, label, slots=count) for label, count in zip(labels, slots, strict=True)))
    text = render(name, hosts, RankOrder(algo="ring", hosts=tuple(labels)))
    if name == "order":
        assert order_from_json(json.loads(text), "o").hosts == tuple(labels)
    else:
        assert parse_hosts(text, name) == hosts


def test_commands_name_the_file_and_count_the_ranks() -> None:
    assert command("openmpi", "hf", HOSTS) == "mpirun --hostfile hf --map-by seq -n 4 PROGRAM"
    full = Hosts((Host("c", "10.0.0.3"), Host("a", "a.x.org")))
    option = "--mca orte_keep_fqdn_hostnames 1"
    assert command("openmpi", "hf", full) == f"mpirun --hostfile hf --map-by seq {option} -n 2 PROGRAM"
    assert command("slurm", "hf", HOSTS) == "SLURM_HOSTFILE=hf srun --distribution=arbitrary -n 4 PROGRAM"
    assert command("horovod", "hf", HOSTS) == 'horovodrun --gloo -np 4 -H "$(cat hf)" PROGRAM'
    assert command("hosts", "hf", HOSTS) is None


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"--format slrum: .*choose one of order, hosts, openmpi"):
        render("slrum", HOSTS, ORDER)


@pytest.mark.parametrize(
    ("name", "address"), [("openmpi", "gpu_a"), ("mpich", "fd00::1"), ("horovod", "fd00::1"), ("lightgbm", "gpu-a")]
)
def test_addresses_a_launcher_cannot_read_are_refused(name: str, address: str) -> None:
    with pytest.raises(UsageError, match=rf"^--format {name}: .*\bx\b.*{address}.*address="):
        render(name, Hosts((Host("c", "10.0.0.3"), Host("x", address))), ORDER)


@pytest.mark.parametrize(
    ("name", "host"),
    [("slurm", "10.0.0.1"), ("kubernetes", "Gpu-A")],
)
def test_names_a_launcher_cannot_know_are_refused(name: str, host: str) -> None:
    with pytest.raises(UsageError, match=rf"^--format {name}: {host} .*address="):
        render(name, Hosts((Host("c", "10.0.0.3"), Host(host, host))), ORDER)


@pytest.mark.parametrize("name", ["openmpi", "lightgbm", "mpich"])
def test_two_hosts_that_are_one_to_the_launcher_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^--format {name}: hosts c and x are both 10\.0\.0\.3, and "):
        render(name, Hosts((Host("c", "10.0.0.3", port=1), Host("x", "10.0.0.3", port=2))), ORDER)


def test_open_mpi_cuts_names_at_the_first_dot() -> None:
    render("openmpi", Hosts((Host("a.x.org", "a.x.org"), Host("b.x.org", "b.x.org"))), ORDER)
    with pytest.raises(UsageError, match=r"^--format openmpi: hosts a\.x\.org and a\.y\.org are both a, and "):
        render("openmpi", Hosts((Host("a.x.org", "a.x.org"), Host("a.y.org", "a.y.org"))), ORDER)


def test_lightgbm_has_no_more_ports_than_there_are() -> None:
    with pytest.raises(UsageError, match="there are 53136 from 12400 on"):
        render("lightgbm", Hosts((Host("a", "10.0.0.1", slots=53137),)), ORDER)
