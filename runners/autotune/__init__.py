"""Autotune beside the launcher: what rank 0 tells becomes decisions, schedules and a log of both."""
