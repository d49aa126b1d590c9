"""Which host takes which rank: searches for cheap orders."""
