"""The backend over the store: a database by the transaction client, in a node or over the native
protocol."""
