"""The server side of the Spark sink: batches are staged, and become visible once."""
