"""Hosts as points in a space whose distances are the round trips without their noise (PLink thesis 4.2.1, eq. 4.1)."""
