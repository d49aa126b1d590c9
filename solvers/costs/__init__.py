"""What one collective costs on a network, given an order of its ranks."""
