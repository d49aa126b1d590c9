"""Flow-level simulation of collectives and jobs on a network of shared links."""
