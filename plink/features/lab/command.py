"""``plink lab``: an emulated cloud on this machine."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from plink.model.hosts import render_hosts
from plink.model.lab import HostStatus, LinkStatus
from plink.model.units import format_gbps, parse_duration, parse_rate
from plink.terminal.options import Json, takes
from plink.terminal.screen import print_json, say, show_table
from runners.lab import faults, lifecycle, state
from runners.lab.blueprint import DEFAULT_NAME, Blueprint, LabSettings

app = typer.Typer(no_args_is_help=True)


def _chosen(context: typer.Context, name: str) -> str:
    """Return the lab that a command is about: the one named, here or before the command; else the only one there is."""
    name = name or (context.parent.params.get("name", "") if context.parent is not None else "")
    if name or context.command.name == "lab":
        return name
    labs = state.names()
    return labs[0] if len(labs) == 1 and context.command.name != "up" else DEFAULT_NAME


_NAME = {
    "show_default": False,
    "metavar": "NAME",
    "help": f"Name of the lab; several can run at the same time. Default: {DEFAULT_NAME}, else the only one.",
}
Name = Annotated[str, typer.Option(callback=_chosen, **_NAME)]
Target = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="A host, its interface (node-03/eth1), a rack, pod or switch."),
]


@app.callback()
def lab(name: Name = "") -> None:
    """An emulated cloud on this machine: racks of real hosts (namespaces with an sshd each) behind routers.

    Example: plink lab up && plink lab hosts > hosts.txt
    """


@app.command()
@takes(
    LabSettings,
    only="racks hosts_per_rack host_rate uplink_rate uplink_delay_us mtu seed private_folders pods pod_rate topology "
    "base levels rails gpu",
)
def up(settings: LabSettings, name: Name = "") -> None:
    """Bring a lab up (needs root). A lab that is up already is left as it is.

    Example: plink lab up --racks 4 --hosts-per-rack 4 --uplink-rate 200mbit
    """
    blueprint, new = lifecycle.up(replace(settings, name=name))
    say(
        f"lab {name!r} {'is up' if new else 'was up already'}: {blueprint.summary()}; "
        f"next: plink lab hosts{_named(name)} > hosts.txt"
    )


@app.command()
def down(
    name: Name = "",
    all_labs: Annotated[bool, typer.Option("--all", help="Every lab on this machine, half-up ones too.")] = False,
) -> None:
    """Take a lab down and remove all of it. Does nothing when there is none.

    Example: plink lab down
    """
    for lab in state.names() if all_labs else [name]:
        say(f"lab {lab!r} {'is down' if lifecycle.down(lab) else 'was not up'}")


@app.command()
def status(name: Name = "", as_json: Json = False) -> None:
    """Show the state of hosts and uplinks, faults included.

    Example: plink lab status
    """
    shown = faults.status(*_standing(name))
    if as_json:
        print_json(shown.to_json())
        return
    rows = [(link.name, "", _state(link, "up" if link.connected else "cut"), link.rate) for link in shown.links]
    for host in shown.hosts:
        word = "dead" if not host.alive else "up" if host.connected else "cut"
        rows.append((host.name, host.address, _state(host, word), host.rate))
    heads = ("host or link", "address", "state", "rate")
    show_table(heads, [(*row[:3], format_gbps(row[3] / 1e9)) for row in rows])


def _named(name: str) -> str:
    return "" if name == DEFAULT_NAME else f" --name {name}"


def _state(part: HostStatus | LinkStatus, word: str) -> str:
    loss = f", loses {100 * part.loss:g} %" if part.loss else ""
    return word + loss + (f", {part.delay_us} us late" if part.delay_us else "")


def _standing(name: str) -> tuple[Blueprint, state.LabState]:
    state.need_root("plink lab")
    lab = state.LabState(name)
    return lab.blueprint(), lab


@app.command()
def hosts(name: Name = "") -> None:
    """Print the lab's hosts file: names and addresses in shuffled order.

    Example: plink lab hosts > hosts.txt
    """
    sys.stdout.write(render_hosts(_standing(name)[0].hosts()))


@app.command("exec", context_settings={"allow_interspersed_args": False})
def execute(
    context: typer.Context,
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host of the lab.")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND", help="What to run there.")],
    name: Annotated[str, typer.Option(**_NAME)] = "",
) -> None:
    """Run a command on a lab host.

    Example: plink lab exec node-01 -- ping -c 3 node-02
    """
    state.need_root("plink lab exec")
    if command[0].startswith("--name"):  # words after HOST are not read as options: the command may have such ones
        after = command[1:] if "=" in command[0] else command[2:]
        name, command = (command[0].partition("=")[2] or command[1], after) if after else (name, command)
    lifecycle.exec_on(state.LabState(_chosen(context, name)), host, command)


@app.command()
def shape(
    target: Target,
    rate: Annotated[str, typer.Option(metavar="RATE", help="The new rate, like 50mbit.")],
    name: Name = "",
) -> None:
    """Slow a host, one of its interfaces, a switch, or the uplink of a rack or pod down, in both directions.

    Example: plink lab shape node-03 --rate 50mbit
    """
    faults.shape(_standing(name)[0], target, parse_rate(rate))
    say(f"{target}: {rate} in both directions")


@app.command()
def loss(
    target: Target,
    percent: Annotated[float, typer.Option(help="Share of the packets that are lost, each way.")] = 2.0,
    name: Name = "",
) -> None:
    """Lose packets of a host, one of its interfaces, a switch, or the uplink of a rack or pod, at random; 0 ends it.

    By the kernel's netem, else by a filter of the lab's own routers: a line says which.

    Example: plink lab loss node-03 --percent 2
    """
    means = faults.impair(*_standing(name), target, loss=percent / 100)
    say(f"{target} loses {percent:g} % of the packets each way, by {means}")


@app.command()
def delay(
    target: Target,
    time: Annotated[
        str, typer.Option(metavar="TIME", help="How much longer round trips become (500us, 2ms), 1s at most.")
    ] = "500us",
    name: Name = "",
) -> None:
    """Delay what a host, or the uplink of a rack or pod, sends, so that its round trips are longer; 0 ends it.

    By the kernel's netem, else by the lab's own routers (of racks): a line says which.

    Example: plink lab delay node-03 --time 500us
    """
    means = faults.impair(*_standing(name), target, delay_us=round(parse_duration(time) * 1e6))
    say(f"what {target} sends is {time} late, by {means}")


@app.command()
def cut(
    target: Target,
    off: Annotated[
        str | None, typer.Option("--from", metavar="RACK", help="Only from this rack; the target is a rack, too.")
    ] = None,
    name: Name = "",
) -> None:
    """Unplug a host, one of its interfaces, a switch, a rack or a pod: packets are dropped without an error.

    Example: plink lab cut rack1
    """
    blueprint, _ = _standing(name)
    if off is None:
        faults.cut(blueprint, target)
        say(f"{target} is cut off")
    else:
        faults.part(blueprint, target, off)
        say(f"{target} and {off} are cut off from each other")


@app.command()
def kill(target: Annotated[str, typer.Argument(metavar="HOST", help="A host.")], name: Name = "") -> None:
    """Power a host off.

    Example: plink lab kill node-03
    """
    faults.kill(_standing(name)[0], target)
    say(f"{target} is dead; `plink lab heal{_named(name)}` starts it again")


@app.command()
def load(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The host that sends.")],
    sink: Annotated[str, typer.Argument(metavar="TO", help="The host that receives.")],
    rate: Annotated[str, typer.Option(metavar="RATE", help="How much to send.")] = "100mbit",
    duration: Annotated[str, typer.Option(metavar="TIME", help="Duration, ten minutes at most.")] = "30s",
    name: Name = "",
) -> None:
    """Send cross traffic from one host to another in the background; it ends by itself (or with heal).

    A host takes part in one such flow: a new one ends the old.

    Example: plink lab load node-01 node-02 --rate 100mbit --duration 30s
    """
    faults.load(*_standing(name), source, sink, parse_rate(rate), round(parse_duration(duration)))
    say(f"{source} sends {rate} to {sink} for {duration}")


@app.command()
def heal(name: Name = "") -> None:
    """Undo every fault: cables in, rates as at first, dead hosts started, cross traffic ended.

    Example: plink lab heal
    """
    faults.heal(*_standing(name))
    say(f"lab {name!r} is as it was when it was brought up")
