"""Text of the cost of an elastic job."""

from typing import Any


def format_cost(cost: dict[str, Any]) -> str:
    """Return the total cost, and the cost per iteration once there is one; at least one host has a price."""
    each = "" if cost["per_iteration"] is None else f", {cost['per_iteration']:.3g} an iteration"
    return f"{cost['total']:.4g}{each}"


def cost_so_far(status: dict[str, Any]) -> str | None:
    """Return the cost so far of a running job; None where no host has a price."""
    cost = status["cost"]
    if cost is None:
        return None
    left_out = len(cost["without_price"])
    missing = "" if not left_out else "the one host that has" if left_out == 1 else f"the {left_out} hosts that have"
    return format_cost(cost) + (f" (without {missing} no price)" if missing else "")
