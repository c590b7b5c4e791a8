"""What several packages share: errors, ids, timestamps, keys, limits, ports. Imports nothing of
Kvorum.
"""
