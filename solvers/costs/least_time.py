"""Least possible time of an all-reduce on a fabric: its tiers as a tree of links, and the bound."""

import numpy as np

from plink.errors import UsageError
from solvers.costs.fabric import BYTES_PER_US, Fabric, Labels
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


def tier_tree(fabric: Fabric, order: Labels) -> TierTree:
    """Return the tree of a fabric's tiers that connects these ranks. What ranks of one host exchange is free.

    :param order: shape (N,), the host at each rank.
    :raises UsageError: where rates are unknown, or hosts have several interfaces, which are no tree.
    """
    if fabric.paths is not None:
        raise UsageError(
            "hosts have several interfaces, and hubs and the least possible time go by one each: take bml or bcube"
        )
    if not has_known_links(fabric):
        raise UsageError("the least possible time needs rates of hosts: `plink probe HOSTS` measures them")
    own = fabric.resources[0].host_gbps(), fabric.resources[1].host_gbps()
    free = np.full(len(order), np.inf)
    labels, rates = [np.arange(len(order)), order], [(free, free), own]
    names = [[""] * len(order), list(fabric.names)]
    for tier in fabric.tiers:
        group_of, both_ways = tier.group_of, (tier.out_gbps, tier.in_gbps)
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


def links_for_masters(fabric: Fabric, order: Labels) -> TierTree | None:
    """Return the tree of links by which two-level aggregation has masters; None where its masters are by sizes: rates
    of hosts are unknown (those of pairs do not say what hosts share), hosts have several interfaces, or there is one.

    :param order: shape (N,), the host at each rank.
    """
    if fabric.paths is not None or len(np.unique(order)) < 2:
        return None
    return tier_tree(fabric, order) if fabric.measured or fabric.has_host_rates else None
