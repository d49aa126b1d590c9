"""Transient machines from the command line (`plink spot`)."""
