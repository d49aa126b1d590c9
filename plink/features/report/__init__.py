"""Reports on a network: an HTML page, its pictures, and the same in the terminal."""
