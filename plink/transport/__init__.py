"""Agents on hosts: what the controller sends them, how it keeps them alive, and how they end.

Legend: the *controller* is the plink command a person typed; an *agent* is a stdlib-only Python program that the
controller starts on a host through a *connector* (SSH, or a child process) and that ends when the controller does.
"""
