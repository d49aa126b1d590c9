"""The provider ``aws``: EC2 spot instances by the ``aws`` command, which has the user's credentials and retries.

Instances are requested by ``run-instances`` with a client token, which EC2 grants once, and tagged by the same call. A
lease is a tag too: the start-up script of each instance reads its own tags from the metadata service, and shuts down
when the lease has run out, which terminates it. (EC2 User Guide: "Ensuring idempotency", "View tags for your EC2
instances using instance metadata", "Change instance initiated shutdown behavior".)
"""

import json
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from plink.errors import InputError, UsageError
from plink.model.codec import convert
from plink.model.spot.journal import InstanceEnd
from plink.model.spot.market_file import AwsTable
from plink.model.spot.prices import LINUX
from plink.model.units import parse_moment
from runners.spot.commands import PriceAnswer, run_command
from runners.spot.provider import (
    LEASE_TAG,
    RUN_TAG,
    TOKEN_TAG,
    ListedInstance,
    PricePoint,
    ProviderError,
    ProviderFailure,
    RentalOrder,
)

_ENV = {"AWS_RETRY_MODE": "adaptive", "AWS_MAX_ATTEMPTS": "6", "AWS_PAGER": ""}  # exponential back-off with jitter
_CODE = re.compile(r"An error occurred \((?P<code>[A-Za-z.]+)\)")
_CODES: dict[ProviderFailure, str] = {
    "capacity": "InsufficientInstanceCapacity InsufficientCapacity SpotMaxPriceTooLow Unsupported",
    "limit": "MaxSpotInstanceCountExceeded InstanceLimitExceeded VcpuLimitExceeded",
    "throttled": "RequestLimitExceeded Throttling",
    "credentials": "ExpiredToken ExpiredTokenException RequestExpired AuthFailure UnauthorizedOperation "
    "InvalidClientTokenId",
}
_FAILURES = {code: failure for failure, codes in _CODES.items() for code in codes.split()}
_IN_DOUBT = ("InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "IdempotentParameterMismatch")
_INVALID = re.compile("Invalid|Missing|Malformed|Unknown|Unsupported|OptInRequired|PendingVerification")
_ENDED = ("shutting-down", "terminated", "stopping", "stopped")
_REASON_TIME = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")
_LEASE_SCRIPT = """\
#!/bin/sh
# plink: end this instance when its lease, a tag that plink renews, has run out.
(
base=http://169.254.169.254/latest
until_s={until_s}
while sleep 30; do
  token=$(curl -sf -m 5 -X PUT "$base/api/token" -H 'X-aws-ec2-metadata-token-ttl-seconds: 300')
  lease=$(curl -sf -m 5 -H "X-aws-ec2-metadata-token: $token" "$base/meta-data/tags/instance/{tag}")
  case "$lease" in ''|*[!0-9]*) ;; *) until_s=$lease ;; esac
  [ "$(date +%s)" -lt "$until_s" ] || shutdown -h now
done
) > /dev/null 2>&1 &
"""


@dataclass(frozen=True)
class AwsProvider:
    """EC2 spot instances with the tag of one run. ``types``: whose prices are asked for; ``start_up``: the script."""

    run: str
    table: AwsTable
    types: tuple[str, ...]
    product: str = LINUX
    start_up: str = ""

    def _ec2(self, *words: str) -> Any:
        return self._aws("ec2", *words)

    def _aws(self, *words: str) -> Any:
        """Run ``aws`` and return what it prints.

        :raises ProviderError: with what its error code means.
        """
        profile = ("--profile", self.table.profile) if self.table.profile else ()
        argv = ["aws", *words, "--region", self.table.region, "--output", "json", *profile]
        try:
            return run_command(argv, env=_ENV)
        except ProviderError as error:
            raise _explained(error) from None

    def account(self) -> str:
        """Return the number of the account that the credentials are of."""
        answer = self._aws("sts", "get-caller-identity")
        if not isinstance(answer, dict) or not isinstance(answer.get("Account"), str):
            raise ProviderError("unavailable", f"aws printed no account: {ascii(answer)[:80]}")
        return str(answer["Account"])

    def prices(self, since_s: float) -> Sequence[PricePoint]:
        """Return the spot price history of the types since then; the command joins its pages."""
        start = datetime.fromtimestamp(since_s, UTC).isoformat()
        selection = ("--instance-types", *self.types, "--product-descriptions", self.product)
        answer = self._ec2("describe-spot-price-history", "--start-time", start, *selection)
        points = []
        for entry in _rows(answer, "SpotPriceHistory"):
            try:
                point = {
                    "zone": entry["AvailabilityZone"],
                    "type": entry["InstanceType"],
                    "product": entry["ProductDescription"],
                    "since_s": parse_moment(entry["Timestamp"]),
                    "price": float(entry["SpotPrice"]),
                }
                points.append(convert(PriceAnswer, point, "").point)
            except (KeyError, TypeError, ValueError, OverflowError, InputError, UsageError):
                raise ProviderError("unavailable", f"aws printed no price: {ascii(entry)[:80]}") from None
        return sorted(points, key=lambda point: point.since_s)

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """Request instances of one market, transient or on demand; EC2 may grant fewer."""
        table, zone = self.table, order.market.zone
        tags = {"Name": f"plink {self.run}", RUN_TAG: self.run, TOKEN_TAG: order.token}
        tags[LEASE_TAG] = str(int(order.lease_until_s))
        spot = {"MaxPrice": f"{order.bid:.6f}", "SpotInstanceType": "one-time"}
        spot["InstanceInterruptionBehavior"] = "terminate"
        market = ("--instance-market-options", json.dumps({"MarketType": "spot", "SpotOptions": spot}))
        script = _LEASE_SCRIPT.format(until_s=int(order.lease_until_s), tag=LEASE_TAG) + _inner(self.start_up)
        words = (
            *("--client-token", order.token, "--count", f"1:{order.count}"),
            *("--image-id", table.image, "--instance-type", order.market.type),
            *("--placement", f"AvailabilityZone={zone}"),
            *(() if order.market.is_on_demand else market),
            *("--instance-initiated-shutdown-behavior", "terminate"),
            *("--metadata-options", "HttpTokens=required,InstanceMetadataTags=enabled"),
            *("--tag-specifications", json.dumps([{"ResourceType": "instance", "Tags": _pairs(tags)}])),
            *(("--key-name", table.key_name) if table.key_name else ()),
            *(("--security-group-ids", *table.security_groups) if table.security_groups else ()),
            *(("--subnet-id", table.subnets[zone]) if zone in table.subnets else ()),
        )
        try:
            with tempfile.NamedTemporaryFile("w", prefix="plink-") as file:  # arguments are seen by everybody
                file.write(script)
                file.flush()
                answer = self._ec2("run-instances", *words, "--user-data", f"file://{file.name}")
        except OSError as error:
            raise ProviderError("invalid", f"cannot write the start-up script: {error.strerror}") from None
        return [self._instance(entry) for entry in _rows(answer, "Instances")]

    def listing(self) -> Sequence[ListedInstance]:
        """Return the instances with this run's tag; EC2 lists terminated ones for about an hour."""
        answer = self._ec2("describe-instances", "--filters", f"Name=tag:{RUN_TAG},Values={self.run}")
        return [
            self._instance(entry)
            for reservation in _rows(answer, "Reservations")
            for entry in _rows(reservation, "Instances")
        ]

    def _instance(self, entry: Any) -> ListedInstance:
        try:
            tags = {tag["Key"]: tag["Value"] for tag in entry.get("Tags", ())}
            state, since = convert(str, entry["State"]["Name"], ""), parse_moment(entry["LaunchTime"])
            address = entry.get("PrivateIpAddress" if self.table.private_addresses else "PublicIpAddress") or None
            end: InstanceEnd | None = None
            until = None
            if state in _ENDED:
                code = (entry.get("StateReason") or {}).get("Code", "")
                end = "interrupted" if code.startswith("Server.Spot") else "released"
                shown = _REASON_TIME.search(entry.get("StateTransitionReason") or "")
                until = None if shown is None else max(since, parse_moment(shown[1]))
            instance = {
                "id": entry["InstanceId"],
                "token": tags.get(TOKEN_TAG, ""),
                "since_s": since,
                "address": address,
                "until_s": until,
                "end": end,
                "run": tags.get(RUN_TAG),
            }
            return convert(ListedInstance, instance, "")
        except (KeyError, TypeError, ValueError, AttributeError, InputError, UsageError):
            raise ProviderError("unavailable", f"aws printed no instance: {ascii(entry)[:80]}", False) from None

    def release(self, ids: Sequence[str]) -> None:
        """Terminate instances, each by itself where EC2 refuses one of them.

        :raises ProviderError: the first one, after all have been tried.
        """
        try:
            self._ec2("terminate-instances", "--instance-ids", *ids)
        except ProviderError as error:
            if len(ids) == 1 and "InvalidInstanceID.NotFound" in str(error):
                return
            if len(ids) == 1 or _CODE.search(str(error)) is None or error.failure == "throttled":
                raise
        else:
            return
        errors = []
        for name in ids:
            try:
                self.release([name])
            except ProviderError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """Set the tag that the start-up scripts read."""
        self._ec2("create-tags", "--resources", *ids, "--tags", f"Key={LEASE_TAG},Value={int(until_s)}")


def _inner(start_up: str) -> str:
    """Return a start-up script as the end of another one. One with a ``#!`` line runs by that."""
    if not start_up.startswith("#!"):
        return start_up
    return (
        "script=$(mktemp /var/tmp/plink-XXXXXX) && chmod 700 $script && "
        f"printf %s {shlex.quote(start_up)} > $script && exec $script\n"
    )


def _pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _rows(answer: Any, key: str) -> list[Any]:
    rows = answer.get(key) if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise ProviderError("unavailable", f"aws printed no {key}: {ascii(answer)[:80]}", has_no_effect=False)
    return rows


def _explained(error: ProviderError) -> ProviderError:
    """Return the error with what its code means.

    The command tries again by itself, and shows the code of its last attempt. Capacity, a limit, an invalid request or
    a missing permission say that EC2 granted nothing for this client token before; a throttled attempt, or one with
    credentials that have expired, says nothing of an earlier one that was not answered.
    """
    text = str(error)
    code_match = _CODE.search(text)
    if code_match is None:
        if "Unable to locate credentials" in text or re.search(r"\bSSO\b", text):
            return ProviderError("credentials", text)
        return error
    code = code_match["code"]
    if code in _IN_DOUBT:
        return ProviderError("unavailable", text, has_no_effect=False)
    failure = _FAILURES.get(code, "invalid")
    is_invalid = failure == "invalid" and _INVALID.match(code) is not None
    is_certain = failure in ("capacity", "limit") or code == "UnauthorizedOperation" or is_invalid
    return ProviderError(failure, text, has_no_effect=is_certain)
