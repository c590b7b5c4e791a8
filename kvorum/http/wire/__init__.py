"""Bytes of HTTP requests and answers as plain data, for servers and clients."""
