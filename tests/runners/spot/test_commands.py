"""The provider of a user's own commands: what they are asked, and answers that cannot be."""

import json
import sys
from pathlib import Path

import pytest

from plink.model.spot.prices import Market
from runners.spot.commands import CommandProvider
from runners.spot.provider import ListedInstance, PricePoint, ProviderError, RentalOrder
from tests.lab.waiting import until

ORDER = RentalOrder("run1-1", Market("zone-a", "small"), 3, 0.1, 2e9)
INSTANCE = {"id": "i-1", "token": "run1-1", "since_s": 1.5e9, "address": "10.0.0.1"}


def provider(folder: Path, answer: str, code: int = 0) -> CommandProvider:
    """Its commands keep what they were asked in a file, and print ``answer``."""
    script = (
        "import sys; open(sys.argv[1], 'w').write(sys.stdin.read()); "
        f"sys.stdout.write({answer!r}); sys.stderr.write('no; rm -rf $HOME'); sys.exit({code})"
    )
    commands = {
        method: (sys.executable, "-c", script, str(folder / method))
        for method in ("prices", "acquire", "listing", "release")
    }
    return CommandProvider("run1", commands)


def request_of(folder: Path, method: str) -> object:
    return json.loads((folder / method).read_text())


def test_prices_in_order(tmp_path: Path) -> None:
    rows = [{"zone": "zone-a", "type": "small", "since_s": at, "price": at / 1e10} for at in (1.5e9, 1.4e9)]
    points = provider(tmp_path, json.dumps(rows)).prices(1.3e9)
    assert points == [PricePoint(Market("zone-a", "small"), at, at / 1e10) for at in (1.4e9, 1.5e9)]
    assert request_of(tmp_path, "prices") == {"run": "run1", "since_s": 1.3e9}


def test_acquire_release_and_listing(tmp_path: Path) -> None:
    granted = provider(tmp_path, json.dumps({"instances": [INSTANCE]})).acquire(ORDER)
    assert granted == [ListedInstance("i-1", "run1-1", 1.5e9, "10.0.0.1")]
    assert request_of(tmp_path, "acquire") == {
        "run": "run1", "token": "run1-1", "zone": "zone-a", "type": "small", "product": "Linux/UNIX", "count": 3,
        "bid": 0.1, "lease_until_s": 2e9,
    }  # fmt: skip
    gone = INSTANCE | {"until_s": 1.6e9, "end": "interrupted"}
    listed = provider(tmp_path, json.dumps([gone])).listing()
    assert (listed[0].until_s, listed[0].end) == (1.6e9, "interrupted")
    provider(tmp_path, "").release(["i-1"])
    assert request_of(tmp_path, "release") == {"run": "run1", "instances": ["i-1"]}


def test_refusal_has_no_effect(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="sold out") as caught:
        provider(tmp_path, json.dumps({"refused": "sold out", "failure": "limit"})).acquire(ORDER)
    assert (caught.value.failure, caught.value.has_no_effect) == ("limit", True)


@pytest.mark.parametrize("reason", ["", " \n", "x" * 100_000])
def test_refusal_says_something_in_a_line(tmp_path: Path, reason: str) -> None:
    with pytest.raises(ProviderError) as caught:
        provider(tmp_path, json.dumps({"refused": reason})).acquire(ORDER)
    assert 0 < len(str(caught.value)) < 1000
    assert caught.value.has_no_effect


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("", 0), ("granted!", 0), ("[1, 2]", 0), ('{"instances": [{"id": "i-1"}]}', 0),
        (json.dumps({"instances": [INSTANCE], "refused": "one only"}), 0),
        ('{"instances": 3}', 0), ("{}", 1),
        (json.dumps({"instances": [INSTANCE | {"token": "run2-1"}]}), 0),
        (json.dumps({"instances": [INSTANCE] * 4}), 0),
        (json.dumps({"instances": [INSTANCE | {"address": "10.0.0.1; reboot"}]}), 0),
    ],
)  # fmt: skip
def test_invalid_answer_leaves_the_request_in_doubt(tmp_path: Path, answer: str, code: int) -> None:
    with pytest.raises(ProviderError) as caught:
        provider(tmp_path, answer, code).acquire(ORDER)
    assert not caught.value.has_no_effect


def test_invalid_argument_had_no_effect() -> None:
    with pytest.raises(ProviderError, match="true") as caught:
        CommandProvider("run1", {"acquire": ("true", "a\0b")}).acquire(ORDER)
    assert caught.value.has_no_effect


def test_missing_command_had_no_effect() -> None:
    with pytest.raises(ProviderError, match="no-such-command") as caught:
        CommandProvider("run1", {"acquire": ("no-such-command",)}).acquire(ORDER)
    assert caught.value.has_no_effect


def test_endless_output_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plink.transport.command_output.MAX_OUTPUT_BYTES", 1 << 20)
    with pytest.raises(ProviderError, match="yes: it printed more than 1 MiB") as caught:
        CommandProvider("run1", {"acquire": ("yes",)}).acquire(ORDER)
    assert not caught.value.has_no_effect


def test_late_command_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.spot.commands.COMMAND_TIMEOUT_S", 0.5)
    script = f"sleep 60 & echo $! > {tmp_path}/pid; wait"
    with pytest.raises(ProviderError) as caught:
        CommandProvider("run1", {"acquire": ("sh", "-c", script)}).acquire(ORDER)
    assert not caught.value.has_no_effect
    child = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    until(lambda: not child.exists() or child.read_text().rpartition(")")[2].split()[0] == "Z", 10, "its child ends")
