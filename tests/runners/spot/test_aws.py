"""The provider ``aws``: what EC2's error codes and odd output mean, with a command ``aws`` that prints them."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from plink.model.spot.market_file import AwsTable
from plink.model.spot.prices import Market, on_demand_market
from runners.spot.aws import AwsProvider
from runners.spot.provider import ProviderError, ProviderFailure, RentalOrder
from tests.stand_ins import program


def order(token: str, count: int = 2) -> RentalOrder:
    return RentalOrder(token, Market("us-east-1a", "c5.2xlarge"), count, 0.2, 2e9)


def stub(folder: Path, monkeypatch: pytest.MonkeyPatch, message: str, code: int = 254) -> AwsProvider:
    """A command ``aws`` that fails as EC2 does."""
    program(folder, "aws", f"cat <<'END' >&2\n{message}\nEND\nexit {code}")
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return AwsProvider("aaaa", AwsTable(region="us-east-1", image="ami-1"), ("c5.2xlarge",))


@pytest.mark.parametrize(
    ("code", "failure", "has_no_effect"),
    [
        ("InsufficientInstanceCapacity", "capacity", True),
        ("MaxSpotInstanceCountExceeded", "limit", True),
        ("RequestLimitExceeded", "throttled", False),
        ("Throttling", "throttled", False),
        ("ExpiredToken", "credentials", False),
        ("UnauthorizedOperation", "credentials", True),
        ("IncorrectState", "invalid", False),
        ("InvalidParameterValue", "invalid", True),
        ("InternalError", "unavailable", False),
    ],
)
def test_error_codes_of_ec2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, failure: ProviderFailure, has_no_effect: bool
) -> None:
    text = f"An error occurred ({code}) when calling the RunInstances operation: because"
    with pytest.raises(ProviderError, match=code) as caught:
        stub(tmp_path, monkeypatch, text).acquire(order("aaaa-1"))
    assert (caught.value.failure, caught.value.has_no_effect) == (failure, has_no_effect)


def test_connection_that_breaks_leaves_the_request_in_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProviderError) as caught:
        stub(tmp_path, monkeypatch, "Read timeout on endpoint URL").acquire(order("aaaa-1"))
    assert not caught.value.has_no_effect


def test_missing_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProviderError) as caught:
        stub(tmp_path, monkeypatch, "Unable to locate credentials. You can configure credentials").listing()
    assert caught.value.failure == "credentials"


def listed(name: object, year: int) -> str:
    row = {"InstanceId": name, "LaunchTime": f"{year}-01-01T00:00:00+00:00", "State": {"Name": "running"}}
    return json.dumps({"Reservations": [{"Instances": [row]}]})


@pytest.mark.parametrize(
    "printed",
    ["{}", '{"Reservations": [{"Instances": [{}]}]}', "[]", "null", listed("i-1", 6026), listed("i-1", 1926),
     listed("", 2026), listed(1, 2026)],
)  # fmt: skip
def test_invalid_listing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str) -> None:
    program = stub(tmp_path, monkeypatch, "")
    (tmp_path / "aws").write_text(f"#!/bin/sh\necho '{printed}'\n")
    with pytest.raises(ProviderError, match="aws printed"):
        program.listing()


@pytest.mark.parametrize(
    ("zone", "price", "year"), [("a", "1e9", 2026), ("a", "0.1", 6026), ("", "0.1", 2026), ("a", "0", 2026)]
)
def test_price_that_no_journal_can_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str, price: str, year: int
) -> None:
    row = {"AvailabilityZone": zone, "InstanceType": "t", "ProductDescription": "p", "SpotPrice": price,
           "Timestamp": f"{year}-01-01T00:00:00+00:00"}  # fmt: skip
    program = stub(tmp_path, monkeypatch, "")
    (tmp_path / "aws").write_text(f"#!/bin/sh\necho '{json.dumps({'SpotPriceHistory': [row]})}'\n")
    with pytest.raises(ProviderError, match="aws printed no price"):
        program.prices(0)


def test_missing_aws_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProviderError, match="cannot run aws") as caught:
        AwsProvider("aaaa", AwsTable(region="us-east-1", image="ami-1"), ("c5.2xlarge",)).listing()
    assert caught.value.has_no_effect


def test_history_of_several_markets_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"AvailabilityZone": zone, "InstanceType": "c5.2xlarge", "ProductDescription": "Linux/UNIX",
         "SpotPrice": "0.1300", "Timestamp": f"2026-01-0{day}T00:00:00+00:00"}
        for zone in ("us-east-1a", "us-east-1b") for day in (3, 2, 1)
    ]  # fmt: skip
    program = stub(tmp_path, monkeypatch, "")
    (tmp_path / "answer").write_text(json.dumps({"SpotPriceHistory": rows}))
    (tmp_path / "aws").write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    points = program.prices(0)
    assert len(points) == 6
    assert [point.since_s for point in points] == sorted(point.since_s for point in points)


def recording(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> AwsProvider:
    """A command ``aws`` that writes its arguments to a file, and then does as ``body`` says."""
    made = stub(folder, monkeypatch, "")
    (folder / "aws").write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\n{body}\n')
    return made


@pytest.mark.parametrize("code", ["OperationNotPermitted", "InvalidInstanceID.Malformed", "UnauthorizedOperation"])
def test_instance_that_cannot_be_terminated_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    error = f"echo 'An error occurred ({code}) when calling TerminateInstances: no' >&2; exit 254"
    made = recording(tmp_path, monkeypatch, f'case "$*" in *i-1*) {error};; esac')
    with pytest.raises(ProviderError, match=code):
        made.release(["i-1", "i-2", "i-3"])
    requests = (tmp_path / "asked").read_text().splitlines()
    assert [line.split("--instance-ids ")[1].split(" --region")[0] for line in requests] == [
        "i-1 i-2 i-3", "i-1", "i-2", "i-3",
    ]  # fmt: skip


def test_start_up_script_is_in_a_file_of_its_own_and_not_in_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = f"""for word; do case $word in
file://*) cp "${{word#file://}}" {tmp_path}/data; stat -c %a "${{word#file://}}" > {tmp_path}/mode;; esac; done
echo '{{"Instances": []}}'"""
    made = recording(tmp_path, monkeypatch, copy)
    replace(made, start_up="#!/usr/bin/env python3\nprint('the key is 1234')\n").acquire(order("aaaa-1"))
    assert "1234" not in (tmp_path / "asked").read_text()
    assert "print('the key is 1234')" in (tmp_path / "data").read_text().replace("'\"'\"'", "'")
    assert (tmp_path / "mode").read_text().strip() == "600"


def test_start_up_script_runs_by_its_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recording(
        tmp_path,
        monkeypatch,
        f"""for word; do case $word in
file://*) sed '/^(/,/^)/d' "${{word#file://}}" > {tmp_path}/data;; esac; done
echo '{{"Instances": []}}'""",
    )
    program = (
        f"#!{sys.executable}\nimport sys\nopen({str(tmp_path / 'ran')!r}, 'w').write('it\\'s \\\\ ' + sys.argv[0])\n"
    )
    replace(made, start_up=program).acquire(order("aaaa-1"))
    subprocess.run(["sh", str(tmp_path / "data")], check=True)
    text, _, script = (tmp_path / "ran").read_text().rpartition(" ")
    assert text == "it's \\"
    Path(script).unlink()


def test_price_of_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for price in ("0.0000", "-1", "nan", "inf"):
        row = {"AvailabilityZone": "us-east-1a", "InstanceType": "c5.2xlarge", "ProductDescription": "Linux/UNIX",
               "SpotPrice": price, "Timestamp": "2026-01-01T00:00:00+00:00"}  # fmt: skip
        made = recording(tmp_path, monkeypatch, f"echo '{json.dumps({'SpotPriceHistory': [row]})}'")
        with pytest.raises(ProviderError, match="no price"):
            made.prices(0)


@pytest.mark.parametrize(("text", "failure"), [
    ("Error loading SSO Token: Token for x does not exist", "credentials"),
    ("the processor gave up", "unavailable"),
])  # fmt: skip
def test_missing_credentials_differ_from_other_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, failure: ProviderFailure
) -> None:
    with pytest.raises(ProviderError) as caught:
        stub(tmp_path, monkeypatch, text).acquire(order("aaaa-1"))
    assert caught.value.failure == failure
    assert caught.value.has_no_effect == (failure == "credentials")


def test_on_demand_machines_are_requested_without_a_bid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = recording(tmp_path, monkeypatch, "echo '{\"Instances\": []}'")
    made.acquire(order("t1"))
    made.acquire(replace(order("t2"), market=on_demand_market("us-east-1a", "c5.2xlarge")))
    spot, on_demand = (tmp_path / "asked").read_text().splitlines()
    assert "--instance-market-options" in spot
    assert "--instance-market-options" not in on_demand
    assert "c5.2xlarge" in on_demand
