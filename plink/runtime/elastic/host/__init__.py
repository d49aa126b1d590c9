"""The host itself: the program, its memory, preemption notices, checkpoints, the control channel."""
