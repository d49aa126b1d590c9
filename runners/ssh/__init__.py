"""Reach hosts over SSH (paramiko), as the user's own ``ssh`` would: keys, agent, configuration, host keys."""
