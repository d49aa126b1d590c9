"""What an elastic job costs, in a person's words."""

from typing import Any


def cost_said(cost: dict[str, Any]) -> str:
    """In all, and per iteration once there is one; some host has a price."""
    each = "" if cost["per_iteration"] is None else f", {cost['per_iteration']:.3g} an iteration"
    return f"{cost['total']:.4g}{each}"


def cost_so_far(status: dict[str, Any]) -> str | None:
    """Of a job that runs, whose hosts' prices are known; None where none is."""
    cost = status.get("cost")  # a job of an earlier plink does not tell
    if cost is None:
        return None
    left_out = len(cost["without_price"])
    whose = "" if not left_out else "the one host that has" if left_out == 1 else f"the {left_out} hosts that have"
    return cost_said(cost) + (f" (without {whose} no price)" if whose else "")
