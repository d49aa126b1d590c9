"""All-reduces of real libraries, timed in a lab: every order of ranks with the same processes, one after the other."""
