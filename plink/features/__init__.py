"""One folder a feature: its request (options), run (the library's function), show (lines) and command."""
