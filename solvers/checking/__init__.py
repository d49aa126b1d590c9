"""Does the cost model rank orders as the clock does? Which orders to run, and what to make of their times."""
