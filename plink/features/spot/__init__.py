"""Spot: transient machines that are rented and given up by cost per work (BidBrain)."""
