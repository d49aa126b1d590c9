"""How a controller talks with the agents it starts on hosts: what is sent, what keeps them alive, what ends them.

Legend: the *controller* is the plink command a person typed; an *agent* is a stdlib-only Python program that the
controller starts on a host through a *connector* (SSH, or a child process) and that ends when the controller does.
"""
