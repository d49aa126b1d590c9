"""Comparison of rank orders by runs of a program in pairs (an A/B test)."""
