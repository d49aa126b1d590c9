"""Real jobs on a "host" that is a child process: what ranks are given, what they print, and when nothing runs."""

import json
import os
import socket
import sys

import pytest

from plink.errors import PlinkError, UsageError
from plink.model.hosts import Host, Hosts
from plink.transport.addresses import local_addresses
from runners.job.placement import PlacementError
from runners.job.runner import Job
from tests.runners.child_jobs import ChildJobs

PRINT_ARGUMENTS = "import json, sys; print(json.dumps(sys.argv[1:]))"
PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
NASTY = (
    "",
    " ",
    "two words",
    "line\nbreak",
    "\ttab",
    "it's",
    'say "hi"',
    "$(touch gotcha)",
    "`touch gotcha`",
    "${HOME}",
    "a;b|c&d>e<f",
    "*",
    "~",
    "\\n",
    "--help",
    "-c",
    "zwölf ≠ 12",
    os.fsdecode(b"not \xff utf-8"),
)


def test_arguments_reach_a_program_unchanged(jobs: ChildJobs) -> None:
    assert jobs.python(PRINT_ARGUMENTS, *NASTY).exit_code == 0
    assert json.loads(jobs.lines(0)[0]) == list(NASTY)
    assert os.listdir(jobs.folder) == []


def test_arguments_reach_a_python_file_unchanged(jobs: ChildJobs) -> None:
    """Also when its name needs quotes; it is run with the first interpreter there is."""
    script = jobs.folder / "it's $(mine).py"
    script.write_text(PRINT_ARGUMENTS)
    assert jobs.launch(jobs.job(script.name, *NASTY)).exit_code == 0
    assert json.loads(jobs.lines(0)[0]) == list(NASTY)
    assert os.listdir(jobs.folder) == [script.name]


def test_ranks_get_torchruns_environment(jobs: ChildJobs) -> None:
    assert jobs.python(PRINT_ENVIRONMENT, slots=3).exit_code == 0
    result = [json.loads(jobs.lines(rank)[0]) for rank in range(3)]
    for rank, env in enumerate(result):
        same = {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "3", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        peers = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "=lo"}
        assert env | same | own | peers | {"OMP_NUM_THREADS": "1"} == env
    (port,) = {env["MASTER_PORT"] for env in result}
    with socket.socket() as rendezvous:
        rendezvous.bind(("127.0.0.1", int(port)))


def test_rank_identity_cannot_be_overridden(jobs: ChildJobs) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        with pytest.raises(UsageError, match=f"--env {name}=5: "):
            jobs.job("true", env={name: "5"})


def test_the_proof_is_the_very_process_that_runs(jobs: ChildJobs) -> None:
    """The process that reported where it is becomes the user's program: the process ids are the same."""
    result = jobs.python("import os; print(os.getpid(), os.getcwd())", slots=2)
    assert [finding.problem for finding in result.locations] == [None, None]
    assert [jobs.lines(rank) for rank in range(2)] == [[f"{finding.pid} {jobs.folder}"] for finding in result.locations]
    assert jobs.placements == [list(result.locations)]


def test_output_is_labelled_by_rank_and_stream(jobs: ChildJobs) -> None:
    code = "import os, sys; r = os.environ['RANK']; print('out', r); print('err', r, file=sys.stderr, end='')"
    jobs.python(code, slots=3)
    assert sorted(jobs.printed) == [(r, s, f"{s} {r}") for r in range(3) for s in ("err", "out")]


def test_output_that_is_no_text_comes_out_as_it_went_in(jobs: ChildJobs) -> None:
    """Also where a character is cut in two between two writes."""
    printed = b"\xff\x00 \xc3\xa9 ok"
    code = f"import os; data = {printed!r}; [os.write(1, data[i:i+1]) for i in range(len(data))]"
    jobs.python(code)
    assert [line.encode("utf-8", "surrogateescape") for line in jobs.lines(0)] == [printed]


@pytest.mark.extended
def test_much_output_is_whole(jobs: ChildJobs) -> None:
    """More than any pipe holds, ended at once: nothing is lost at the end."""
    jobs.python("for i in range(100_000): print(i)", slots=2)
    for rank in range(2):
        assert jobs.lines(rank) == [str(i) for i in range(100_000)]


def test_standard_input_is_empty(jobs: ChildJobs) -> None:
    """A program that asks a question must not read what plink says to its agent."""
    assert jobs.python("import sys; print(repr(sys.stdin.read()))").exit_code == 0
    assert jobs.lines(0) == ["''"]


@pytest.mark.parametrize(
    ("program", "expected"),
    [("gone.py", "no such file: .*gone.py"), ("./data", "no such program: ./data")],
)  # fmt: skip
def test_a_program_that_is_not_there_is_named(program: str, expected: str, jobs: ChildJobs) -> None:
    (jobs.folder / "data").write_text("not executable")
    with pytest.raises(PlinkError, match=f"^here: {expected}; nothing was run$"):
        jobs.launch(jobs.job(program))


def test_a_folder_or_interpreter_that_is_not_there_is_named(jobs: ChildJobs) -> None:
    (jobs.folder / "train.py").write_text("")
    with pytest.raises(PlinkError, match="no such folder: /no/such/folder"):
        jobs.launch(Job("true", (), ("/no/such/folder",)))
    with pytest.raises(PlinkError, match=r"no such program: python9\.99; nothing was run"):
        jobs.launch(Job("train.py", (), (str(jobs.folder),), ("python9.99",)))


def test_the_first_folder_and_interpreter_that_are_there_are_taken(jobs: ChildJobs) -> None:
    (jobs.folder / "train.py").write_text("import os, sys; print(os.getcwd(), sys.executable)")
    job = Job("train.py", (), ("/no/such/folder", str(jobs.folder)), ("python9.99", sys.executable))
    assert jobs.launch(job).exit_code == 0
    assert jobs.lines(0) == [f"{jobs.folder} {sys.executable}"]


@pytest.mark.skipif(not local_addresses(), reason="a machine without an address cannot be distinguished from another")
def test_nothing_runs_when_two_hosts_are_one_machine(jobs: ChildJobs) -> None:
    two = Hosts((Host("a", "127.0.0.1"), Host("b", "127.0.0.1")))
    job = jobs.job(sys.executable, "-c", "open('ran', 'w')")
    with pytest.raises(PlacementError, match=r"1 of 2 ranks .* is the same machine as a.*nothing was run") as caught:
        jobs.launch(job, hosts=two)
    assert [finding.problem for finding in caught.value.result.locations] == [None, "is the same machine as a"]
    assert jobs.placements == []
    assert jobs.connector.all_end()
    assert os.listdir(jobs.folder) == []


def test_nothing_runs_on_a_machine_that_was_not_measured(jobs: ChildJobs) -> None:
    machines = {"here": {"hostname": "another", "addresses": ["192.0.2.77"]}}
    job = jobs.job(sys.executable, "-c", "open('ran', 'w')")
    with pytest.raises(PlacementError, match="measured on the machine 'another'"):
        jobs.launch(job, identities=machines)
    assert jobs.connector.all_end()
    assert os.listdir(jobs.folder) == []
