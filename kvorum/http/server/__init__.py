"""What serves the routes at a node or a proxy: sockets, applications, transactions, watches."""
