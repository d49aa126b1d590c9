"""``plink reflector`` and ``plink stamp``: STAMP without agents."""

import socket
import time
from typing import Annotated

import typer
from msgspec import structs

from plink.errors import HostError, PlinkError, UsageError
from plink.model.units import parse_duration, parse_limit
from plink.terminal.options import Json
from plink.terminal.screen import print_json, say
from plink.transport.addresses import source_address_for
from probes.agent.summary import PERCENTILES
from probes.reflector import PORT, query, serve
from runners.lab.blueprint import is_lab_address

_MAX_PORT = 65535


def reflector(
    listen: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[
        int, typer.Option(min=0, max=_MAX_PORT, metavar="PORT", help="UDP port; 862 is the assigned one (needs root).")
    ] = 18862,
    duration: Annotated[str, typer.Option(metavar="TIME", help="Stop after this time.")] = "1h",
) -> None:
    """Answer STAMP probes (RFC 8762, unauthenticated), never with more bytes than were received.

    Example: plink reflector --port 18862 --duration 10m
    """
    deadline = time.monotonic() + parse_duration(duration)

    def on_ready(bound: int) -> None:
        say(f"reflecting on {listen} port {bound} for {duration}; Ctrl-C ends it")

    try:
        answered = serve(listen, port, on_ready, lambda: time.monotonic() < deadline)
    except OSError as error:
        raise PlinkError(f"cannot listen on {listen} port {port}: {error.strerror}") from None
    say(f"{answered} probes answered")


def _source(address: str) -> str:
    try:
        return source_address_for(address)
    except OSError as error:
        raise HostError(address, f"no route to it: {error.strerror}") from None


def stamp(
    target: Annotated[str, typer.Argument(metavar="HOST[:PORT]", help="A STAMP reflector.")],
    count: Annotated[int, typer.Option(min=1, max=100_000, help="Number of probes.")] = 100,
    interval: Annotated[str, typer.Option(metavar="TIME", help="Time between two probes.")] = "1ms",
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="A probe without an answer by then counts as lost.")
    ] = "1s",
    as_json: Json = False,
) -> None:
    """Measure the round trip to any STAMP reflector (RFC 8762, unauthenticated).

    Example: plink stamp 127.0.0.1:18862 --count 1000
    """
    name, colon, port = target.rpartition(":")
    if not colon or not port.isdigit() or name.endswith(":"):
        name, port = target, str(PORT)
    name = name.strip("[]")
    if not 1 <= int(port) <= _MAX_PORT:
        raise UsageError(f"{target}: choose a port from 1 to {_MAX_PORT}")
    try:
        address = str(socket.getaddrinfo(name, int(port), type=socket.SOCK_DGRAM)[0][4][0])
    except (OSError, OverflowError, UnicodeError):
        raise UsageError(f"{target}: its name does not resolve") from None
    if is_lab_address(address) and not is_lab_address(_source(address)):
        raise UsageError(f"{address} exists only inside an emulated lab: `plink lab exec HOST -- plink stamp ...`")
    try:
        answered = query((address, int(port)), count, parse_duration(interval), parse_limit(timeout), ssid=1)
    except OSError as error:
        raise HostError(target, str(error.strerror)) from None
    round_trips = structs.replace(answered, target=target)
    if as_json:
        print_json(round_trips.to_json())
    elif round_trips.received:
        values = ", ".join(f"p{p} {v:.1f}" for p, v in zip(PERCENTILES, round_trips.percentiles_us, strict=True))
        print(f"{round_trips.received} of {count} answered, round trip in us: {values} ({round_trips.clock} clock)")
    if not round_trips.received:
        raise HostError(target, f"none of {count} probes was answered; is a STAMP reflector there?")
