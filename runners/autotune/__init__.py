"""Autotune beside the launcher: rank 0's measurements become decisions, schedules and a log of both."""
