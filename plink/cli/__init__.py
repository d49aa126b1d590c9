"""The command line: parses, calls the other packages, shows. Commands import them inside their functions."""
