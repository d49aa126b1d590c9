"""Schedules of collectives: made, verified and counted."""
