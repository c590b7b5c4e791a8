"""What runs as a program: the process of a node, several stores, a worker, a proxy, a cluster on
this machine."""
