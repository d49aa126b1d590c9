"""Files of spot machines, the journal of a run, what providers print, and defaults of options."""

import json
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

MARKET_FILE = b"""\
billing = "hourly-2016"
zones = ["zone-a"]
[[types]]
name = "small"
cores = 4
on_demand = 0.2
advisor_bucket = 1
[anchors]
type = "small"
count = 3
[reference]
type = "small"
count = 64
[limits]
max_cores = 768
chunk_cores = 192
budget = 500.0
[application]
iteration_s = [0.1, 3600, 0.0]
start_s = 120
[[held]]
zone = "zone-a"
type = "small"
count = 2
bid = 0.1
held_s = 600
[provider]
kind = "command"
prices = ["prices"]
acquire = ["acquire"]
listing = ["listing"]
release = ["release"]
"""
CONFIG = b"""\
[reorder]
algo = "tree"
set = ["fan-out=3"]
max-moves = 7
json = true
[runs.show]
json = true
"""
INSTANCE = {"id": "i-1", "token": "run1-1", "since_s": 1.5e9, "address": "10.0.0.1", "until_s": 1.6e9,
            "end": "interrupted"}  # fmt: skip
EC2_INSTANCE = {
    "InstanceId": "i-1", "LaunchTime": "2026-01-01T00:00:00+00:00", "State": {"Name": "terminated"},
    "StateReason": {"Code": "Server.SpotInstanceTermination"}, "PublicIpAddress": "10.0.0.1",
    "StateTransitionReason": "Service initiated (2026-01-01 01:00:00 GMT)",
    "Tags": [{"Key": "plink-token", "Value": "run1-1"}, {"Key": "plink-run", "Value": "run1"}],
}  # fmt: skip


def market_file(data: bytes) -> None:
    """Market files, and the odds that are decided by."""
    from plink.model.spot.market_file import read_market_file

    file = read_market_file(_file(data, "market.toml"))
    assert file.limits.max_cores > 0


def histories(data: bytes) -> None:
    """Price and availability histories of every form: written and read again, they are the same."""
    from plink.model.spot.price_files import read_spot_histories
    from solvers.spot.odds import observed

    read = read_spot_histories([_file(data, "us-east-1a_v100_1.json")])
    if read.prices:
        again = _file(json.dumps(read.document().to_json()).encode(), "again.json")
        for market, trace in read_spot_histories([again]).prices.items():
            assert np.array_equal(trace.times, read.prices[market].times)
    for availability in read.availability.values():
        assert observed(availability).count >= 0


def spot_journal(data: bytes) -> None:
    """The journal of a run, and what it comes to."""
    from runners.spot.journal import NAME, read_journal, read_opening
    from solvers.spot.ledger import Ledger, account

    folder = _file(data, NAME).parent
    read_opening(folder)
    if entries := read_journal(folder):
        ledger = Ledger.of(entries)
        assert account(ledger, ledger.at_s).total >= 0


def command_provider(data: bytes) -> None:
    """What a user's own commands print."""
    from runners.spot.commands import CommandProvider

    provider = CommandProvider("run1", {name: (name,) for name in ("prices", "acquire", "listing")})
    _ask_all(data, provider)


def aws_provider(data: bytes) -> None:
    """What the ``aws`` command prints."""
    from plink.model.spot.market_file import AwsTable
    from runners.spot.aws import AwsProvider

    provider = AwsProvider("run1", AwsTable(region="us-east-1", image="ami-1"), ("small",))
    _ask_all(data, provider)


def _ask_all(data: bytes, provider: Any) -> None:
    from plink.model.spot.prices import Market
    from runners.spot.provider import RentalOrder
    from tests.fuzz.targets import _tried

    text = data.decode(errors="replace")

    def ask(method: Callable[..., Sequence[Any]], *words: Any) -> None:
        for each in method(*words):
            if hasattr(each, "price"):
                assert all(isinstance(value, str) for value in (each.market.zone, each.market.type))
                assert 0 < each.price < 1e9
                assert 0 <= each.since_s < 1e11
            elif not isinstance(each, str):
                texts = (each.id, each.token, each.address or "", each.host or "", each.run or "")
                assert all(isinstance(value, str) for value in texts)
                assert 0 <= each.since_s < 1e11

    order = RentalOrder("run1-1", Market("zone-a", "small"), 3, 0.1, 2e9)
    with mock.patch(
        "runners.spot.commands.run_to_end", lambda argv, *_, **__: subprocess.CompletedProcess(argv, 0, text, "")
    ):
        for method, words in ((provider.prices, (0.0,)), (provider.acquire, (order,)), (provider.listing, ())):
            _tried(lambda method=method, words=words: ask(method, *words))  # type: ignore[misc]
        _tried(provider.account)


@cache
def _command_line() -> Any:
    from plink.cli.app import command

    return command()


def config(data: bytes) -> None:
    """``plink.toml``, named and of a clone."""
    from plink.cli.config import defaults_from

    defaults_from(_file(data, "plink.toml"), _command_line)


EVERY = (market_file, histories, spot_journal, command_provider, aws_provider, config)


def _file(data: bytes, name: str) -> Path:
    from tests.fuzz import targets

    return targets._file(data, name)


def documents() -> dict[str, Sequence[bytes]]:
    """By target, inputs to begin with."""
    from runners.spot.journal import NAME, Journal
    from tests.model.spot.test_price_files import entry
    from tests.runners.spot.test_journal import ENTRIES

    folder = _file(b"", NAME).parent
    with Journal(folder) as journal:
        for each in ENTRIES:
            journal.add(each)
    written = (folder / NAME).read_bytes()
    plain = b"".join(line.partition(b', "crc32"')[0] + b"}\n" for line in written.splitlines())
    market = {"zone": "a", "type": "t", "product": "p", "times_s": [0.0, 9000.0], "prices": [1.0, 2.0],
              "until_s": 20000.0, "holes_s": [[1.0, 9000.0]]}  # fmt: skip
    availability = {"zone": "a", "type": "t", "counts": [1, 0, 4]}
    price = {"zone": "zone-a", "type": "small", "since_s": 1.5e9, "price": 0.05}
    spot_price = {"SpotPriceHistory": [entry(0, "0.05")]}
    return {
        "market_file": (MARKET_FILE, MARKET_FILE.replace(b"hourly-2016", b"per-second")),
        "histories": (
            *_json(
                {"schema": "plink.spot-prices/1", "currency": "USD", "markets": [market]},
                {"schema": "plink.spot-availability/1", "gap_seconds": 60, "zones": [availability]},
                {"metadata": {"gap_seconds": 300, "start_s": 5}, "data": [1, 0, 1]},
                {"SpotPriceHistory": [entry(0), entry(5, "0.1")]},
            ),
            b"zone,type,timestamp,price\na,b,2016-01-01,1\na,b,1465603200,2\n",
            b"SPOTPRICEHISTORY\tus-east-1a\tsmall\tLinux/UNIX\t0.05\t2026-01-01T00:00:00Z\n",
        ),
        "spot_journal": (plain, written),
        "command_provider": _json([price], {"instances": [INSTANCE]}, [INSTANCE], {"refused": "no"}),
        "aws_provider": _json(
            spot_price, {"Instances": [EC2_INSTANCE]}, {"Reservations": [{"Instances": [EC2_INSTANCE]}]},
            {"Account": "123"},
        ),
        "config": (CONFIG, b"runs.show.json = true\n[tool.plink]\n"),
    }  # fmt: skip


def _json(*values: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)
