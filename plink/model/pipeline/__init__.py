"""Pipelines: layer profiles, plans, and the actions and versions that follow from a plan."""
