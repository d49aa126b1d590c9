"""Jobs started by launchers that others wrote (mpirun, srun, ...), with the same proof as our own."""
