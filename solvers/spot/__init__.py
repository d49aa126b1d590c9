"""Which transient machines to take, keep and give up, by cost per unit of work (Harlap thesis, 4.3)."""
