"""Rows of tables as arrays, and the memory they live in."""
