"""``plink cost``."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

import plink
from plink.errors import InputError
from plink.features.cost.request import CostRequest
from plink.features.cost.show import lines
from plink.records import workspace
from plink.terminal.inputs import network_from
from plink.terminal.options import JobHosts, Json, NetworkFile, takes
from plink.terminal.screen import print_json, print_lines, say


@takes(CostRequest)
def cost(
    request: CostRequest,
    network_file: NetworkFile = None,
    hosts_file: JobHosts = None,
    order: Annotated[
        Path | None, typer.Option(help="An order, or one host name per line; default: the file's order of hosts.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a collective costs on the measured network, by round and bottleneck.

    Example: plink cost cloud.json --algo ring --size 100MB --order order.json
    """
    network = network_from(network_file, hosts_file)
    price = plink.cost(network, None if order is None else plink.read_order(order), request, source=str(order))
    if as_json:
        print_json(price.to_json())
        return
    print_lines(*lines(price, network, order is not None))
    if order is None and workspace.ORDER.is_file():
        with contextlib.suppress(InputError):  # whoever uses it is told what is wrong with it
            if plink.read_order(workspace.ORDER).network == network.fingerprint():
                say(f"`plink launch` would take {workspace.ORDER}, another order: --order {workspace.ORDER} prices it")
