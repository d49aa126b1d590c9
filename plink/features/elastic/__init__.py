"""Elastic jobs (AgileML): training on machines that may be taken away."""
