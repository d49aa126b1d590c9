"""What does the network look like? Measuring only: nothing in this room decides anything."""
