"""Code that runs inside a user's training process.

It imports only the domain model of plink, for the user's folder may hold a ``runners/`` or ``solvers/`` of its own.
"""
