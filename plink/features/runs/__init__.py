"""Recorded runs: listed, shown, and the decisions of Autotune in one made again."""
