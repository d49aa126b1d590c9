"""Jobs that Kubernetes starts: plink writes the objects, and the program that runs in their pods keeps the order.

The pods of a Job share one template, and the scheduler puts them where it likes: nothing static can say which of them
goes to which node. So none of them has a rank until it runs. The template lets the pods go to the nodes of the order,
one a node; each then looks up its node (which Kubernetes tells it) in the order, and that gives its ranks. Whatever
the scheduler did, rank k is on the node of rank k, or nothing runs.
"""
