"""The parameter server of one host: its partitions and the requests of the controller."""
