"""What became of a network between two measurements of it, beyond noise, told by as few causes as there can be."""
