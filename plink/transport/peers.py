"""Sample of the other hosts that a host is told of, to find its address on the way to them."""

from collections.abc import Sequence

_MAX_PEERS = 8  # some may be this very host under other names, or names that it cannot look up


def sample_peers(addresses: Sequence[str]) -> dict[str, list[str]]:
    """Return for each address up to eight different ones of others, for
    :func:`plink.transport.addresses.own_address_towards`.

    Not all of them: N hosts would be sent N^2 addresses. They are spread over the list, because neighbours in it may
    all be one machine; the first is among them. Where all hosts have the same address it is that one; a single host
    has no peers.
    """
    if len(addresses) < 2:
        return {own: [] for own in addresses}
    distinct = list(dict.fromkeys(addresses))
    sample = distinct[:: -(-len(distinct) // (_MAX_PEERS + 1))]
    return {own: [peer for peer in sample if peer != own][:_MAX_PEERS] or sample for own in distinct}
