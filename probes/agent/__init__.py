"""Agent that runs on the hosts while they are measured: standard library only, sent over the connection."""
