"""Orders: which host takes which ranks of a collective."""
