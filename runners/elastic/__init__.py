"""An elastic job (AgileML): its controller, a process of its own, and the supervisor that reaches the hosts."""
