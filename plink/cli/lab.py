"""``plink lab``: an emulated cloud on this machine."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from plink.model.hosts import render_hosts
from plink.model.units import format_gbps, parse_duration, parse_rate
from plink.terminal.screen import print_json, say
from runners.lab.blueprint import LabSettings

app = typer.Typer(no_args_is_help=True)

if TYPE_CHECKING:
    from plink.model.lab import HostStatus, LinkStatus
    from runners.lab.blueprint import Blueprint

_DEFAULT = "lab"
_HELP = (
    "An emulated cloud on this machine: racks of real hosts (namespaces with an sshd each) behind routers.\n\n"
    "Example: plink lab up && plink lab hosts > hosts.txt"
)
_INTERFACES_PANEL = "Several interfaces a host"


def _chosen(context: typer.Context, name: str) -> str:
    """Return the lab that a command is about: the one named, here or before the command; else the only one there is."""
    name = name or (context.parent.params.get("name", "") if context.parent is not None else "")
    if name or context.command.name == "lab":
        return name
    from runners.lab.state import names

    labs = names()
    return labs[0] if len(labs) == 1 and context.command.name != "up" else _DEFAULT


_NAME = {
    "show_default": False,
    "help": f"Name of the lab; several can run at the same time. Default: {_DEFAULT}, else the only one.",
}
Name = Annotated[str, typer.Option(callback=_chosen, **_NAME)]


@app.callback(help=_HELP)
def _lab(name: Name = "") -> None:
    """Take ``--name`` before the command, too."""


Target = Annotated[
    str,
    typer.Argument(metavar="TARGET", help="A host, its interface (node-03/eth1), a rack, pod or switch."),
]


@app.command()
def up(
    name: Name = "",
    racks: Annotated[int, typer.Option(help="Number of racks.")] = 4,
    hosts_per_rack: Annotated[int, typer.Option(help="Hosts in each.")] = 4,
    host_rate: Annotated[str, typer.Option(help="What each host can send, and receive.")] = "200mbit",
    uplink_rate: Annotated[str, typer.Option(help="What each rack can send, and receive.")] = "200mbit",
    uplink_delay: Annotated[
        str, typer.Option(help="Delay added on uplinks, each way (needs the kernel's netem).")
    ] = "0",
    mtu: Annotated[int, typer.Option(help="Largest packet in bytes.")] = 9000,
    seed: Annotated[int, typer.Option(help="Assigns hosts to racks.")] = 0,
    private_folder: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH[=HOSTS]", help="A private folder of each host (or of each of these); repeatable."),
    ] = None,
    pods: Annotated[int, typer.Option(help="Divide the racks between so many pods, each with an uplink; 0: none.")] = 0,
    pod_rate: Annotated[str, typer.Option(help="What each pod can send, and receive.")] = "200mbit",
    topology: Annotated[
        str,
        typer.Option(
            metavar="[racks|bcube|rails]",
            help="Racks of hosts, or hosts with several interfaces.",
            rich_help_panel=_INTERFACES_PANEL,
        ),
    ] = "racks",
    base: Annotated[int, typer.Option(help="Ports of a BCube's switches.", rich_help_panel=_INTERFACES_PANEL)] = 3,
    levels: Annotated[
        int, typer.Option(help="Levels of a BCube: the interfaces of a host.", rich_help_panel=_INTERFACES_PANEL)
    ] = 2,
    rails: Annotated[
        int,
        typer.Option(
            help="Rails, each with an interface of all hosts (--hosts-per-rack).", rich_help_panel=_INTERFACES_PANEL
        ),
    ] = 2,
) -> None:
    """Bring a lab up (needs root). A lab that is up already is left as it is.

    Example: plink lab up --racks 4 --hosts-per-rack 4 --uplink-rate 200mbit
    """
    from runners.lab.lifecycle import up as bring_up

    settings = LabSettings(
        name,
        racks,
        hosts_per_rack,
        parse_rate(host_rate),
        parse_rate(uplink_rate),
        round(parse_duration(uplink_delay) * 1e6),
        mtu,
        seed,
        tuple(private_folder or ()),
        pods,
        parse_rate(pod_rate),
        topology,  # type: ignore[arg-type]  # checked there
        base,
        levels,
        rails,
    )
    blueprint, new = bring_up(settings)
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
    from runners.lab.lifecycle import down as take_down
    from runners.lab.state import names

    for lab in names() if all_labs else [name]:
        say(f"lab {lab!r} {'is down' if take_down(lab) else 'was not up'}")


@app.command()
def status(name: Name = "", as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Show the state of hosts and uplinks, faults included.

    Example: plink lab status
    """
    from runners.lab import faults
    from runners.lab.state import LabState, need_root

    need_root("plink lab status")
    state = LabState(name)
    status = faults.status(state.blueprint(), state)
    if as_json:
        print_json(status.to_json())
        return
    table = Table("host or link", "address", "state", "rate", box=None)
    for link in status.links:
        table.add_row(
            link.name, "", ("up" if link.connected else "cut") + _impaired(link), format_gbps(link.rate / 1e9)
        )
    for host in status.hosts:
        health = "dead" if not host.alive else "up" if host.connected else "cut"
        table.add_row(host.name, host.address, health + _impaired(host), format_gbps(host.rate / 1e9))
    Console().print(table)


def _named(name: str) -> str:
    return "" if name == _DEFAULT else f" --name {name}"


def _impaired(status: "HostStatus | LinkStatus") -> str:
    loss = f", loses {100 * status.loss:g} %" if status.loss else ""
    return loss + (f", {status.delay_us} us late" if status.delay_us else "")


@app.command()
def hosts(name: Name = "") -> None:
    """Print the lab's hosts file: names and addresses in shuffled order.

    Example: plink lab hosts > hosts.txt
    """
    from runners.lab.state import LabState, need_root

    need_root("plink lab hosts")
    sys.stdout.write(render_hosts(LabState(name).blueprint().hosts()))


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
    from runners.lab.lifecycle import exec_on
    from runners.lab.state import LabState, need_root

    need_root("plink lab exec")
    if command[0].startswith("--name"):  # words after HOST are not read as options: the command may have such ones
        after = command[1:] if "=" in command[0] else command[2:]
        name, command = (command[0].partition("=")[2] or command[1], after) if after else (name, command)
    exec_on(LabState(_chosen(context, name)), host, command)


@app.command()
def shape(
    target: Target, rate: Annotated[str, typer.Option(help="The new rate, like 50mbit.")], name: Name = ""
) -> None:
    """Slow a host, one of its interfaces, a switch, or the uplink of a rack or pod down, in both directions.

    Example: plink lab shape node-03 --rate 50mbit
    """
    from runners.lab import faults

    faults.shape(_blueprint(name), target, parse_rate(rate))
    say(f"{target}: {rate} in both directions")


@app.command()
def loss(
    target: Target,
    percent: Annotated[float, typer.Option(help="Share of the packets that are lost, each way.")] = 2.0,
    name: Name = _DEFAULT,
) -> None:
    """Lose packets of a host, one of its interfaces, a switch, or the uplink of a rack or pod, at random; 0 ends it.

    By the kernel's netem, else by a filter of the lab's own routers: a line says which.

    Example: plink lab loss node-03 --percent 2
    """
    from runners.lab import faults
    from runners.lab.state import LabState

    means = faults.impair(_blueprint(name), LabState(name), target, loss=percent / 100)
    say(f"{target} loses {percent:g} % of the packets each way, by {means}")


@app.command()
def delay(
    target: Target,
    time: Annotated[str, typer.Option(help="How much longer round trips become (500us, 2ms), 1s at most.")] = "500us",
    name: Name = _DEFAULT,
) -> None:
    """Delay what a host, or the uplink of a rack or pod, sends, so that its round trips are longer; 0 ends it.

    By the kernel's netem, else by the lab's own routers (of racks): a line says which.

    Example: plink lab delay node-03 --time 500us
    """
    from runners.lab import faults
    from runners.lab.state import LabState

    delay_us = round(parse_duration(time) * 1e6)
    means = faults.impair(_blueprint(name), LabState(name), target, delay_us=delay_us)
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
    from runners.lab import faults

    if off is None:
        faults.cut(_blueprint(name), target)
        say(f"{target} is cut off")
    else:
        faults.part(_blueprint(name), target, off)
        say(f"{target} and {off} are cut off from each other")


@app.command()
def kill(target: Annotated[str, typer.Argument(metavar="HOST", help="A host.")], name: Name = "") -> None:
    """Power a host off.

    Example: plink lab kill node-03
    """
    from runners.lab import faults

    faults.kill(_blueprint(name), target)
    say(f"{target} is dead; `plink lab heal{_named(name)}` starts it again")


@app.command()
def load(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The host that sends.")],
    sink: Annotated[str, typer.Argument(metavar="TO", help="The host that receives.")],
    rate: Annotated[str, typer.Option(help="How much to send.")] = "100mbit",
    duration: Annotated[str, typer.Option(help="Duration, ten minutes at most.")] = "30s",
    name: Name = "",
) -> None:
    """Send cross traffic from one host to another in the background; it ends by itself (or with heal).

    A host takes part in one such flow: a new one ends the old.

    Example: plink lab load node-01 node-02 --rate 100mbit --duration 30s
    """
    from runners.lab import faults
    from runners.lab.state import LabState

    blueprint = _blueprint(name)
    faults.load(blueprint, LabState(name), source, sink, parse_rate(rate), round(parse_duration(duration)))
    say(f"{source} sends {rate} to {sink} for {duration}")


@app.command()
def heal(name: Name = "") -> None:
    """Undo every fault: cables in, rates as at first, dead hosts started, cross traffic ended.

    Example: plink lab heal
    """
    from runners.lab import faults
    from runners.lab.state import LabState

    faults.heal(_blueprint(name), LabState(name))
    say(f"lab {name!r} is as it was when it was brought up")


def _blueprint(name: str) -> "Blueprint":
    from runners.lab.state import LabState, need_root

    need_root("plink lab")
    return LabState(name).blueprint()
