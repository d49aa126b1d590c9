"""Elastic jobs from the command line (`plink elastic`)."""
