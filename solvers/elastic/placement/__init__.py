"""Decisions of AgileML's elasticity controller (Harlap thesis, 4.2).

Who serves, who works, what to do when hosts come and go.
"""
