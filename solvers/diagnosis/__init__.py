"""What is wrong with a network, told from its measurements."""
