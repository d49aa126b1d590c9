"""Workers: the loop over clocks, the parameter client and its cache."""
