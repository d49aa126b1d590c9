"""Pipelines: profiles of models, plans of their stages, simulated, trained and assessed."""
