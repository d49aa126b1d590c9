"""What the commands that start jobs refuse before any host is asked, and how many options they have."""

from pathlib import Path
from typing import Any

import pytest

from plink.cli.app import command
from plink.cli.verbosity import PANEL
from plink.errors import UsageError
from plink.features.launch.request import JobRequest, LaunchSettings, launch_settings
from tests.cli.files import refusal
from tests.conftest import typed

# 20; --pipeline with its --checkpoint and --restore; --verify-nccl.
MAX_LAUNCH_OPTIONS = 24


def options_of(*words: str) -> dict[str, Any]:
    """The options of a command by their long names, without ``--help``."""
    node: Any = command()
    for word in words:
        node = node.commands[word]
    return {entry.opts[-1]: entry for entry in node.params if entry.param_type_name == "option"}


def test_launch_has_few_options_and_others_the_same_ones() -> None:
    launch = options_of("launch")
    assert len([option for option in launch.values() if option.rich_help_panel != PANEL]) <= MAX_LAUNCH_OPTIONS
    for words in (("submit",), ("compare",), ("manifests",), ("runs", "rerun"), ("elastic", "run")):
        shared = launch.keys() & options_of(*words).keys() - {"--runner"}
        assert len(shared) > 5
        assert all(options_of(*words)[name].help == launch[name].help for name in shared)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("compare --order given x", "--order given: both orders are run; omit the option"),
        ("compare --higher-is-better x", "--higher-is-better goes with --metric"),
        ("compare --metric ([ x", "--metric ([: that is no regular expression"),
        ("compare --backend ring x", "No such option: --backend"),
        ("manifests --image i --sync . x", "No such option: --sync"),
        ("submit --sync . x", "No such option: --sync"),
        ("runs rerun nowhere", "no run nowhere"),
        ("launch --backend elastic --runner local x.py", "--backend elastic: choose one of "),
        ("launch --rule asp x.py", "No such option: --rule"),
        ("elastic run fit", "fit must be a .py file that defines make(arguments)"),
        ("elastic run --rule ssp:31 x.py", "ssp:31: choose a staleness of 0 to 30 clocks"),
        ("elastic run --rule async x.py", "rule 'async': choose one of bsp, ssp:N"),
        ("elastic run --stage-thresholds 15:1 x.py", "stage thresholds 15:1: expected two ratios"),
        ("elastic run --stage-thresholds auto x.py", "--stage-thresholds auto needs --host-bandwidth"),
        ("elastic run --heartbeat-timeout 1ms x.py", "--heartbeat-timeout 0.001s: 1s at least"),
        ("elastic run --checkpoint-every 1s x.py", "--checkpoint-every goes with --checkpoint DIR"),
        ("elastic run --runner torchrun x.py", "--runner torchrun: choose one of ssh, local, slurm, kubernetes"),
    ],
)
def test_bad_options_are_refused_in_one_line(words: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("a address=127.0.0.1 port=1\nb address=127.0.0.2 port=1\n")
    name, *rest = words.split()
    hosts = ["--hosts", "hosts.txt"] if words.startswith("compare x") else []
    assert complaint in refusal(typed(name, *hosts, *rest, cwd=tmp_path))


def test_settings() -> None:
    words = ["max-network-age=2h", "master-port=29500", "allow-version-mismatch=yes", "autotune-every=500ms"]
    assert launch_settings([]) == LaunchSettings()
    assert launch_settings([*words, "autotune-threshold=0.5"]) == LaunchSettings(7200.0, 29500, True, 0.5, 0.5)


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("masterport=1", "write NAME=VALUE, with one of max-network-age, master-port"),
        ("preflight=yes", "preflight= and off, warn or strict"),
        ("colour=red", "write NAME=VALUE"),
        ("master-port=65536", "master-port= and a port, 0 to 65535"),
        ("master-port=-1", "a port"),
        ("allow-version-mismatch=maybe", "yes or no"),
        ("autotune-threshold=1", "0.01 to 0.99"),
        ("autotune-threshold=much", "0.01 to 0.99"),
        ("autotune-threshold=nan", "0.01 to 0.99"),
        ("max-network-age=old", "max-network-age= and 24h"),
    ],
)
def test_invalid_settings_are_refused(word: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=f"--set {word}: .*{complaint}"):
        launch_settings([word])


def test_a_strict_preflight_needs_agents() -> None:
    JobRequest(settings=launch_settings(["preflight=strict"])).check("ssh")
    with pytest.raises(UsageError, match="--set preflight=strict needs plink's agents"):
        JobRequest(settings=launch_settings(["preflight=strict"])).check("mpirun")
