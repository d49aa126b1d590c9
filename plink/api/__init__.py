"""plink as a library: what :mod:`plink` offers by name. It prints nothing and writes no file; notes go to loggers below
``plink``, bad arguments raise :class:`plink.errors.UsageError`, which names options as the command line does."""
