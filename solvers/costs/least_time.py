"""Least possible time of an all-reduce on a fabric: its tiers as a tree of links, and the bound."""

import contextlib
from dataclasses import replace

import numpy as np

from plink.errors import UsageError
from solvers.costs.fabric import BYTES_PER_US, Fabric, Labels, Rates
from solvers.schedules.catalogue import Options
from solvers.schedules.masters import Groups
from solvers.spanning.least_time import LeastTime, least_time
from solvers.spanning.tier_tree import TierTree, tree_of


def least_time_on(fabric: Fabric, order: Labels) -> LeastTime | None:
    """Return the least time of an all-reduce of all ranks; None where rates are unknown, or hosts have several
    interfaces, which are no tree.

    :param order: shape (N,), the host at each rank.
    """
    return least_time(tier_tree(fabric, order)) if has_known_links(fabric) and len(np.unique(order)) > 1 else None


def has_known_links(fabric: Fabric) -> bool:
    """Return whether the rates of a fabric's links are known, and they are a tree: hosts have one interface each."""
    return fabric.paths is None and (fabric.measured or fabric.has_host_rates or fabric.pair_gbps is not None)


def tier_tree(fabric: Fabric, order: Labels, groups_of_hosts: Labels | None = None) -> TierTree:
    """Return the tree of a fabric's tiers that connects these ranks. What ranks of one host exchange is free.

    :param order: shape (N,), the host at each rank. :param groups_of_hosts: shape (H,), in place of the fabric's tiers:
        one tier, whose groups have the links of those groups of a tier that have the same hosts.
    :raises UsageError: where rates are unknown, or hosts have several interfaces, which are no tree.
    """
    if fabric.paths is not None:
        raise UsageError("the least possible time is known of one interface a host, not of several")
    if not has_known_links(fabric):
        raise UsageError("the least possible time needs rates of hosts: `plink probe HOSTS` measures them")
    own = fabric.resources[0].host_gbps(), fabric.resources[1].host_gbps()
    free = np.full(len(order), np.inf)
    labels, rates = [np.arange(len(order)), order], [(free, free), own]
    names = [[""] * len(order), list(fabric.names)]
    tiers = [(tier.group_of, (tier.out_gbps, tier.in_gbps)) for tier in fabric.tiers]
    if groups_of_hosts is not None:
        tiers = [(groups_of_hosts, _links_of(fabric, np.unique(order), groups_of_hosts))]
    for group_of, both_ways in tiers:
        labels.append(group_of[order])
        rates.append(both_ways)
        first = np.full(len(both_ways[0]), -1)
        first[group_of[::-1]] = np.arange(len(group_of))[::-1]
        names.append([f"the link of the group of {fabric.names[k]}" for k in first.tolist()])
    titles = [
        [f"{name} at {gbps:.4g} Gbit/s" for name, gbps in zip(level, np.minimum(*both_ways).tolist(), strict=True)]
        for level, both_ways in zip(names, rates, strict=True)
    ]
    return tree_of(labels, [(out * BYTES_PER_US, into * BYTES_PER_US) for out, into in rates], titles)


def group_tree(fabric: Fabric, order: Labels, groups: Groups) -> TierTree:
    """Return the tree of ranks, their hosts and these groups of ranks, as :func:`tier_tree`.

    :raises UsageError: as that, and where a host has ranks in two groups.
    """
    label_of = np.full(len(fabric.names), -1, dtype=np.intp)
    for label, group in enumerate(groups):
        hosts = np.unique(order[np.asarray(group)])
        if (label_of[hosts] >= 0).any():
            host = fabric.names[int(hosts[label_of[hosts] >= 0][0])]
            raise UsageError(f"the least time of 2lha: {host} has ranks in two groups; a host belongs to one")
        label_of[hosts] = label
    return tier_tree(fabric, order, label_of)


def made_for(algo: str, options: Options, fabric: Fabric, order: Labels) -> Options:
    """Return the options with the links of this order for two-level aggregation that goes by those of another one;
    without, where a host has ranks in two of its groups. Else the options themselves."""
    if algo != "2lha" or options.tree is None or options.groups is None:
        return options
    with contextlib.suppress(UsageError):
        return replace(options, tree=group_tree(fabric, order, options.groups))
    return replace(options, tree=None)


def _links_of(fabric: Fabric, hosts: Labels, group_of: Labels) -> Rates:
    """Return what each group's link carries, Gbit/s: of a tier that has the same group, else without a limit."""
    out, into = (np.full(int(group_of.max()) + 1, np.inf) for _ in range(2))
    for tier in fabric.tiers:
        for label in np.unique(tier.group_of[hosts]).tolist():
            members = tier.group_of[hosts] == label
            group = group_of[hosts[members]][0]
            if np.array_equal(members, group_of[hosts] == group):
                out[group] = min(out[group], tier.out_gbps[label])
                into[group] = min(into[group], tier.in_gbps[label])
    return out, into
