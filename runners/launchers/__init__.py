"""Jobs under external launchers (mpirun, srun, ...), with the same placement verification as plink's own."""
