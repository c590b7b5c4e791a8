"""The backend over the store: a database by the transaction client, in a node or over the native
protocol. Above it there are table names and user keys, below it table ids and storage keys.
"""
