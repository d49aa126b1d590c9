"""``plink pipeline`` and its commands."""
