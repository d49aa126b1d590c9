"""The provider ``command``: commands of the user's own, for any cloud. Requests are JSON on their standard input.

The run's id is in each request, and each command must keep to instances of that run.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from plink.errors import InputError
from plink.model.codec import convert
from plink.model.document import UNSET, Part, Unset
from plink.model.spot.prices import LINUX, Instant, Market, Price
from plink.model.types import Name
from plink.transport.command_output import TooMuchOutput, run_to_end
from runners.spot.provider import ListedInstance, PricePoint, ProviderError, RentalOrder

COMMAND_TIMEOUT_S = 120.0
MAX_SHOWN_CHARACTERS = 300


COMMANDS = ("prices", "acquire", "listing", "release", "renew")


def run_command(argv: Sequence[str], document: Any = None, env: Mapping[str, str] | None = None) -> Any:
    """Return the JSON value that a command prints; None where it prints nothing.

    :param document: goes to its standard input as JSON. :param env: is added to the environment.
    :raises ProviderError: when it is missing, fails, is too slow, or prints too much or no JSON. Only what is missing
        certainly had no effect; callers that understand the message know more.
    """
    try:
        stdin = None if document is None else json.dumps(document).encode()
        done = run_to_end(argv, COMMAND_TIMEOUT_S, stdin, {**os.environ, **(env or {})})
    except TooMuchOutput as error:
        raise ProviderError("unavailable", f"{argv[0]}: {error}; it was ended", has_no_effect=False) from None
    except subprocess.TimeoutExpired:
        raise ProviderError(
            "unavailable", f"{argv[0]}: no answer within {COMMAND_TIMEOUT_S:.0f} s", has_no_effect=False
        ) from None
    except OSError as error:
        raise ProviderError("unavailable", f"cannot run {argv[0]}: {error.strerror}") from None
    except ValueError as error:  # a NUL in an argument
        raise ProviderError("invalid", f"cannot run {argv[0]}: {error}") from None
    if done.returncode:
        text = " ".join((done.stderr or done.stdout).split())[-MAX_SHOWN_CHARACTERS:]
        raise ProviderError(
            "unavailable", f"{argv[0]} ended with exit code {done.returncode}: {text}", has_no_effect=False
        )
    if not done.stdout.strip():
        return None
    try:
        return json.loads(done.stdout)
    except (ValueError, RecursionError):
        shown = done.stdout.strip()[:80]
        raise ProviderError("unavailable", f"{argv[0]} printed no JSON: {shown!r}", has_no_effect=False) from None


class PriceAnswer(Part, frozen=True, kw_only=True):
    """Answer of ``prices``: one price of one market, from ``since_s`` on."""

    zone: Name
    type: Name
    product: Name = LINUX
    since_s: Instant
    price: Price

    @property
    def point(self) -> PricePoint:
        """The price as a driver takes it."""
        return PricePoint(Market(self.zone, self.type, self.product), self.since_s, self.price)


class _AcquireAnswer(Part, frozen=True, kw_only=True):
    """Answer of ``acquire``: what was granted, or why nothing was."""

    instances: tuple[ListedInstance, ...] = ()
    refused: str | Unset = UNSET
    failure: Literal["capacity", "limit", "throttled", "credentials", "invalid"] = "capacity"


@dataclass(frozen=True)
class CommandProvider:
    """Provider behind the commands ``prices``, ``acquire``, ``listing`` and ``release``, and ``renew`` where instances
    have leases."""

    run: str
    commands: Mapping[str, Sequence[str]]

    def _ask(self, method: str, request: Mapping[str, Any], kind: Any) -> Any:
        argv = self.commands[method]
        answer = run_command(argv, {"run": self.run, **request})
        if kind is None:
            return None
        try:
            return convert(kind, answer, f"{argv[0]} ({method})")
        except InputError as error:
            raise ProviderError("unavailable", str(error), has_no_effect=False) from None

    def account(self) -> str:
        """Return no name."""
        return ""

    def prices(self, since_s: float) -> Sequence[PricePoint]:
        """Return what ``prices`` prints."""
        answers: list[PriceAnswer] = self._ask("prices", {"since_s": since_s}, list[PriceAnswer])
        return sorted((answer.point for answer in answers), key=lambda point: point.since_s)

    def acquire(self, order: RentalOrder) -> Sequence[ListedInstance]:
        """Return what ``acquire`` prints as granted."""
        market = order.market
        request = {
            "token": order.token,
            "zone": market.zone,
            "type": market.type,
            "product": market.product,
            "count": order.count,
            "bid": order.bid,
            "lease_until_s": order.lease_until_s,
        }
        answer: _AcquireAnswer = self._ask("acquire", request, _AcquireAnswer)
        name = self.commands["acquire"][0]
        if answer.refused is not UNSET:
            if answer.instances:
                raise ProviderError("unavailable", f"{name} (acquire): both refused and instances", has_no_effect=False)
            reason = " ".join(answer.refused.split())[:MAX_SHOWN_CHARACTERS]
            raise ProviderError(answer.failure, reason or "refused without a reason")
        if any(each.token != order.token for each in answer.instances) or len(answer.instances) > order.count:
            raise ProviderError(
                "unavailable", f"{name} (acquire): more instances than requested, or of another token", False
            )
        return [replace(each, run=None) for each in answer.instances]  # only a tag says the run

    def listing(self) -> Sequence[ListedInstance]:
        """Return what ``listing`` prints."""
        answers: list[ListedInstance] = self._ask("listing", {}, list[ListedInstance])
        return [replace(each, run=None) for each in answers]

    def release(self, ids: Sequence[str]) -> None:
        """Run ``release``."""
        self._ask("release", {"instances": list(ids)}, None)

    def renew(self, ids: Sequence[str], until_s: float) -> None:
        """Run ``renew``, where there is one."""
        if "renew" in self.commands:
            self._ask("renew", {"instances": list(ids), "until_s": until_s}, None)
