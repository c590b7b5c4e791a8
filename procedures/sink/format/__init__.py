"""What the writers of a sink and the node agree on: chunks, rows of the system tables, requests.
Pure. Clients import nothing else of this room.
"""
