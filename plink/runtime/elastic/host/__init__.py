"""What a host tells and keeps: the program, its memory, preemption notices, checkpoints, the control channel."""
