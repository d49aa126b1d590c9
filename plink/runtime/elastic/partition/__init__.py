"""The state of one partition: its clock, its pending updates and its undo log."""
