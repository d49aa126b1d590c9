"""Advice: the fastest algorithm and order for each size, and whether a training step hides its exchange."""
