"""Collectives as schedules: generators of them, the verifier, the counter."""
