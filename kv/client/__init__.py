"""The caller's side of the native protocol: routing by location, deadlines, retries.

- client.py: KvClient, what to do about every way a call can fail
- router.py: where a key lives, as far as known
- channels.py: links by address, embedded or over TCP
- links.py: one channel of requests and replies: rids, coalescing, deadlines
- connection.py: the link over a socket
"""
