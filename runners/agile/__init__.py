"""An elastic job (AgileML): its controller, a process of its own, and the hub that reaches the hosts."""
