"""Diagnoses of hosts and networks: what is wrong now, and what changed between two measurements."""
