"""Which other hosts a host is told of, to find its own way to them: a few, or N hosts would be sent N^2 addresses."""

from collections.abc import Sequence

_FEW = 8  # some may be this very host under other names, or names that it cannot look up


def sample_peers(addresses: Sequence[str]) -> dict[str, list[str]]:
    """By each of the hosts' addresses, up to eight different ones of others, for
    :func:`plink.remote.addresses.towards`.

    They are from all over the list, the first of it first: neighbours in it may all be one machine. Where all hosts
    have the same address it is that one; a single host has no peers.
    """
    if len(addresses) < 2:
        return {own: [] for own in addresses}
    different = list(dict.fromkeys(addresses))
    few = different[:: -(-len(different) // (_FEW + 1))]
    return {own: [peer for peer in few if peer != own][:_FEW] or few for own in different}
