"""What AgileML's elasticity controller decides (Harlap thesis, 4.2): who serves, who works, what to do when hosts come
and go."""
