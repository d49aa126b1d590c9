"""All-reduces over spanning trees of the tiers: the least time that links allow, and the schedule that reaches it."""
