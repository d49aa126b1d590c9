"""The command line: reads what was typed, wires the rooms together, prints. Rooms are imported inside the commands."""
