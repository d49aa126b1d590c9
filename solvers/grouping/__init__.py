"""Which hosts belong together."""
