"""Transfers of asynchronous updates to a server: what is free when, in which order, added up where (MLfabric).

Viswanathan and Akella, "MLfabric: Network-aware distributed machine learning", 2020; cited as M with a section.
"""
