"""Measurements of the network between hosts: round trips, bandwidths, shared links."""
