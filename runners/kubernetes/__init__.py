"""Jobs that Kubernetes starts: plink writes the objects, and the program in their pods keeps the rank order.

The pods of a Job share one template, and the scheduler decides on which node each runs; nothing static can assign them.
So no pod has a rank until it runs. The template lets the pods run on the nodes of the order, one a node. Each then
looks up its node (which Kubernetes tells it) in the order, and that gives its ranks. Whatever the scheduler did,
rank k is on the node of rank k, or nothing runs.
"""
