"""Analyses of a measured network: the hosts in a space, in groups, and drawn in the terminal."""
