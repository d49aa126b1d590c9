"""The provider ``aws``: the real ``aws`` command against moto's EC2.

Both are programs of the PATH (CONTRIBUTING.md); where they are missing these tests are skipped.
"""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec import structs

from plink.model.spot.market_file import AwsTable
from runners.spot.aws import AwsProvider
from runners.spot.provider import LEASE_TAG, ProviderError
from tests.runners.spot.test_aws import order

pytestmark = pytest.mark.skipif(
    not (shutil.which("aws") and shutil.which("moto_server")), reason="needs aws and moto_server on the PATH"
)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """moto's server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["moto_server", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while process.poll() is None:
            try:
                urllib.request.urlopen(f"{url}/moto-api/", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def cloud(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account of its own, empty."""
    for name, text in {
        "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, text)
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST"), timeout=30).close()


def aws(*words: str) -> object:
    done = subprocess.run(["aws", "ec2", *words, "--region", "us-east-1", "--output", "json"], check=True,
                          capture_output=True, text=True)  # fmt: skip
    return json.loads(done.stdout) if done.stdout.strip() else None


def provider(run: str) -> AwsProvider:
    images = aws("describe-images", "--owners", "amazon")
    image = images["Images"][0]["ImageId"]  # type: ignore[index, call-overload]
    return AwsProvider(
        run, AwsTable(region="us-east-1", image=image), ("c5.2xlarge", "c5.xlarge"), start_up="echo hello\n"
    )


@pytest.mark.usefixtures("cloud")
def test_instances_of_a_run_from_request_to_release() -> None:
    mine = provider("aaaa")
    granted = [*mine.acquire(order("aaaa-1", 1)), *mine.acquire(order("aaaa-2", 1))]
    assert [each.token for each in granted] == ["aaaa-1", "aaaa-2"]
    assert all(each.end is None for each in granted)
    listed = mine.listing()
    assert {each.id for each in listed} == {each.id for each in granted}
    assert all(each.address for each in listed)
    mine.release([listed[0].id])
    ends = {each.id: each.end for each in mine.listing()}
    assert ends == {listed[0].id: "released", listed[1].id: None}
    ended = next(each for each in mine.listing() if each.end)
    assert ended.until_s is not None
    assert ended.until_s >= ended.since_s


@pytest.mark.usefixtures("cloud")
def test_requests_are_spot_with_a_limit_a_lease_and_termination() -> None:
    granted = provider("aaaa").acquire(order("aaaa-1", 1))
    answer = aws("describe-instances", "--instance-ids", granted[0].id)
    row = answer["Reservations"][0]["Instances"][0]  # type: ignore[index, call-overload]
    tags = {tag["Key"]: tag["Value"] for tag in row["Tags"]}
    assert row["InstanceLifecycle"] == "spot"
    assert row["Placement"]["AvailabilityZone"] == "us-east-1a"
    assert tags == {"Name": "plink aaaa", "plink-run": "aaaa", "plink-token": "aaaa-1", LEASE_TAG: "2000000000"}
    behavior = aws("describe-instance-attribute", "--instance-id", granted[0].id, "--attribute",
                   "instanceInitiatedShutdownBehavior")  # fmt: skip
    assert behavior["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"  # type: ignore[index, call-overload]


@pytest.mark.usefixtures("cloud")
def test_renewal_moves_the_lease() -> None:
    mine = provider("aaaa")
    granted = mine.acquire(order("aaaa-1"))
    mine.renew([each.id for each in granted], 2e9 + 500)
    tags = aws("describe-tags", "--filters", f"Name=key,Values={LEASE_TAG}")
    assert {tag["Value"] for tag in tags["Tags"]} == {"2000000500"}  # type: ignore[index, call-overload]


@pytest.mark.usefixtures("cloud")
def test_instances_of_other_runs_are_neither_listed_nor_released() -> None:
    mine, other = provider("aaaa"), provider("bbbb")
    mine.acquire(order("aaaa-1"))
    theirs = other.acquire(order("bbbb-1"))
    mine.release([each.id for each in mine.listing()])
    assert {each.id for each in other.listing() if each.end is None} == {each.id for each in theirs}


@pytest.mark.usefixtures("cloud")
def test_release_of_an_instance_that_is_gone_releases_the_others() -> None:
    mine = provider("aaaa")
    granted = mine.acquire(order("aaaa-1"))
    mine.release(["i-0123456789abcdef0", *(each.id for each in granted)])
    assert all(each.end == "released" for each in mine.listing())


@pytest.mark.usefixtures("cloud")
def test_subnet_that_does_not_exist_is_refused_without_effect() -> None:
    mine = provider("aaaa")
    table = structs.replace(mine.table, subnets={"us-east-1a": "subnet-0123456789abcdef0"})
    with pytest.raises(ProviderError) as caught:
        replace(mine, table=table).acquire(order("aaaa-1"))
    assert (caught.value.failure, caught.value.has_no_effect) == ("invalid", True)
