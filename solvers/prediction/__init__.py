"""What the pairs that were not measured would have shown."""
