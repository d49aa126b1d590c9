"""Diagnosis of a network from its measurements."""
