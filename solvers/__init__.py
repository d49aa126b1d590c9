"""What should be done about the network? Pure functions: arrays in, decision out; no files, sockets, clocks."""
