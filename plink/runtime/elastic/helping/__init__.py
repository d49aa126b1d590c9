"""Helpers of stragglers: RapidReassignment (Harlap thesis, 3.3).

Workers that are ahead do parts of the present clock of one that is behind. Helping is a call: a straggler merges what
helpers give back into its own update of the clock, so servers, roll-backs and checkpoints know nothing of it.
"""
