"""Plans of a job: order, groups, who aggregates which chunk, schedule and environment."""
