"""Commands by which `plink spot` rents machines of many clouds through SkyPilot (docs/spot.md, "SkyPilot").

    echo '{"run": "0aaa", "since_s": 0}' | python examples/spot_skypilot.py prices c5.xlarge@aws/us-east-1/us-east-1a

It needs SkyPilot (written for 0.14) and nothing of plink, so that it may run in an environment of SkyPilot's own. Each
instance is a SkyPilot cluster of one node. Its name has the token of its request and a number, so that no launch is
repeated: a cluster of that name exists, or it does not. A zone is what SkyPilot calls infra: cloud, region and zone.
The lease is autodown without a condition, for each setting of it resets its timer. (SkyPilot's documentation: "Python
SDK", "Autostop and Autodown".)
"""

import argparse
import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import sky

PREFIX = "plink-"  # names of clusters begin with a letter
MINUTE_S, HOUR_S = 60.0, 3600.0
MAX_FETCH_S = 10.0  # from the driver's reading of its clock to that of this program
Json = dict[str, Any]
UNCONDITIONAL = sky.skylet.autostop_lib.AutostopWaitFor.NONE  # autodown waits for no job and no SSH session


class State:
    """What has to outlive a command of a run, in a file: the prices seen, and the launches that may be queued still."""

    def __init__(self, run: str) -> None:
        self.path = Path(f"~/.sky/plink-{run}.json").expanduser()
        content = json.loads(self.path.read_text()) if self.path.exists() else {}
        # By market: when each price was first seen, and the price. By cluster: the id of SkyPilot's request.
        self.prices: dict[str, list[list[float]]] = content.get("prices", {})
        self.launches: dict[str, str] = content.get("launches", {})

    def write(self) -> None:
        """Write it whole, or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"prices": self.prices, "launches": self.launches}))
        new.replace(self.path)


def resources(zone: str, kind: str, is_spot: bool = True, image: str | None = None) -> Any:
    """Return one node of a type in a zone."""
    return sky.Resources(infra=zone, instance_type=kind, use_spot=is_spot, image_id=image)


def clusters(names: Sequence[str] | None = None) -> list[Json]:
    """Return the records of clusters, all of them without names, as the clouds have them now."""
    return sky.get(sky.status(cluster_names=names, refresh=sky.StatusRefreshMode.AUTO))


def minutes_until(moment_s: float) -> int:
    """Return the minutes to a time, rounded up."""
    return max(1, math.ceil((moment_s - time.time()) / MINUTE_S))


def prices(request: Json, options: argparse.Namespace, state: State) -> list[Json]:
    """Return the spot prices of SkyPilot's catalog. It has no history: a price counts from when it was first seen."""
    since_s, now = request["since_s"], time.time()
    points = []
    for market in options.markets:
        kind, _, zone = market.partition("@")
        try:
            price = resources(zone, kind).get_cost(HOUR_S)
        except (ValueError, KeyError, AssertionError) as error:
            sys.exit(f"SkyPilot's catalog has no price of {market}: {error}")
        steps = state.prices.setdefault(market, [])
        if not steps:  # the driver takes no price from after it asked
            steps.append([since_s if 0 <= now - since_s < MAX_FETCH_S else now, price])
        elif steps[-1][1] != price:
            steps.append([now, price])
        first = max((place for place, step in enumerate(steps) if step[0] <= since_s), default=0)
        points += [{"zone": zone, "type": kind, "since_s": at, "price": price} for at, price in steps[first:]]
    state.write()
    return points


def acquire(request: Json, options: argparse.Namespace, state: State) -> Json:
    """Submit the launch of each cluster that does not exist; nothing waits until they are up."""
    names = [f"{PREFIX}{request['token']}-{number}" for number in range(request["count"])]
    existing = {record["name"] for record in clusters(names)} | state.launches.keys()
    is_spot = request["product"] != "on-demand"
    granted = []
    for name in names:
        try:
            if name not in existing:
                task = sky.Task(name=name, setup=Path(options.setup).read_text() if options.setup else None)
                task.set_resources(resources(request["zone"], request["type"], is_spot, options.image))
                state.launches[name] = sky.launch(
                    task, cluster_name=name, idle_minutes_to_autostop=minutes_until(request["lease_until_s"]),
                    wait_for=UNCONDITIONAL, down=True,
                )  # fmt: skip
                state.write()
        except Exception as error:
            if granted:
                break
            if type(error) is ValueError:  # the request is invalid; of other errors nobody knows whether it was taken
                return {"refused": str(error), "failure": "invalid"}
            raise
        granted.append({"id": name, "token": request["token"], "since_s": time.time()})
    return {"instances": granted}


def listing(request: Json, options: argparse.Namespace, state: State) -> list[Json]:
    """Return the clusters of the run. SkyPilot forgets those that are gone; one that is stopped was interrupted."""
    mine = f"{PREFIX}{request['run']}-"
    return [
        {
            "id": record["name"], "token": record["name"].removeprefix(PREFIX).rpartition("-")[0],
            "since_s": record["launched_at"],
            "address": record["handle"].head_ip if record["status"].name == "UP" else None,
            "end": "interrupted" if record["status"].name == "STOPPED" else None,
        } for record in clusters() if record["name"].startswith(mine)
    ]  # fmt: skip


def release(request: Json, options: argparse.Namespace, state: State) -> None:
    """Cancel launches that may be queued still, for their clusters do not exist yet; then tear clusters down."""
    queued = [name for name in request["instances"] if name in state.launches]
    errors = failures_of([partial(sky.api_cancel, [state.launches[name]], silent=True) for name in queued])
    errors += failures_of([partial(sky.down, name) for name in request["instances"]])
    if errors:
        raise errors[0]
    for name in queued:
        del state.launches[name]
    state.write()


def renew(request: Json, options: argparse.Namespace, state: State) -> None:
    """Set autodown anew. Clusters that are not up have the whole lease of their launch before them."""
    up = [record["name"] for record in clusters(request["instances"]) if record["status"].name == "UP"]
    lease = {"idle_minutes": minutes_until(request["until_s"]), "wait_for": UNCONDITIONAL, "down": True}
    errors = failures_of([partial(sky.autostop, name, **lease) for name in up])
    if errors:
        raise errors[0]


def failures_of(requests: Sequence[Callable[[], Any]]) -> list[Exception]:
    """Submit all requests, then wait for all, and return the errors; a cluster that does not exist is none."""
    errors: list[Exception] = []

    def attempt(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            if type(error).__name__ != "ClusterDoesNotExist":
                errors.append(error)
            return None

    ids = [attempt(request) for request in requests]
    for request_id in filter(None, ids):
        attempt(partial(sky.get, request_id))
    return errors


def main() -> None:
    """Run one command: a JSON object in, JSON out."""
    parser = argparse.ArgumentParser(description="Commands of plink's provider `command`, by SkyPilot.")
    commands = parser.add_subparsers(required=True)
    for function in (prices, acquire, listing, release, renew):
        command = commands.add_parser(function.__name__)
        command.set_defaults(function=function)
        if function is prices:
            command.add_argument("markets", nargs="+", metavar="TYPE@ZONE")
        if function is acquire:
            command.add_argument("--image", help="default: SkyPilot's own")
            command.add_argument("--setup", metavar="FILE", help="a shell script for each instance")
    options = parser.parse_args()
    request = json.load(sys.stdin)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # SkyPilot prints there, too
            answer = options.function(request, options, State(request["run"]))
    except Exception as error:
        sys.exit(f"SkyPilot: {type(error).__name__}: {error}")
    if answer is not None:
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
