"""The caller's side of the native protocol: routing by location, deadlines, retries.

- client.py: KvClient, what to do about every way a call can fail
- calls.py: what one call has been through, and what its caller may learn
- router.py: where a key lives and who leads there, as far as known
- node_choice.py: whom to ask among nodes that can all be asked
- find.py: a transaction's record, over all nodes
- channels.py: links by address, embedded or over TCP
- links.py: one channel of requests and replies: rids, coalescing, deadlines, doubt
- connection.py: the link over a socket
"""
