"""The provider ``aws``: what EC2's error codes and odd output mean, with a command ``aws`` that prints them."""

import json
import os
import stat
from pathlib import Path

import pytest

from plink.model.spot.prices import Market
from runners.spot.aws import AwsProvider, AwsSettings
from runners.spot.provider import ProviderError, ProviderFailure, RentalOrder


def order(token: str, count: int = 2) -> RentalOrder:
    return RentalOrder(token, Market("us-east-1a", "c5.2xlarge"), count, 0.2, 2e9)


def stub(folder: Path, monkeypatch: pytest.MonkeyPatch, message: str, code: int = 254) -> AwsProvider:
    """A command ``aws`` that fails as EC2 does."""
    program = folder / "aws"
    program.write_text(f"#!/bin/sh\ncat <<'END' >&2\n{message}\nEND\nexit {code}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return AwsProvider("aaaa", AwsSettings("us-east-1", "ami-1", ("c5.2xlarge",)))


@pytest.mark.parametrize(
    ("code", "failure", "has_no_effect"),
    [
        ("InsufficientInstanceCapacity", "capacity", True),
        ("MaxSpotInstanceCountExceeded", "limit", True),
        ("RequestLimitExceeded", "throttled", True),
        ("ExpiredToken", "credentials", True),
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


@pytest.mark.parametrize("printed", ["{}", '{"Reservations": [{"Instances": [{}]}]}', "[]", "null"])
def test_output_that_is_no_listing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str) -> None:
    program = stub(tmp_path, monkeypatch, "")
    (tmp_path / "aws").write_text(f"#!/bin/sh\necho '{printed}'\n")
    with pytest.raises(ProviderError, match="aws printed"):
        program.listing()


def test_missing_aws_command_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProviderError, match="cannot run aws") as caught:
        AwsProvider("aaaa", AwsSettings("us-east-1", "ami-1", ("c5.2xlarge",))).listing()
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
