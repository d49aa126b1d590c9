"""Who aggregates what: chunks dealt to the masters of two-level aggregation, and the schedules that plans stand for."""
