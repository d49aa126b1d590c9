"""Pipelines: planners that cut a model into stages, and the proof of a plan's actions."""
