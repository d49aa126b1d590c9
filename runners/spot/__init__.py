"""Rent transient instances from a provider, for an elastic job that runs: a journal, a driver, and providers."""
