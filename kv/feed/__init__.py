"""The change feed below the transaction layer (F14): what a partition reports about its versions
(`changes`, `recent`), and how the versions of several partitions become one stream of whole
transactions (`collect`, `merge`). Pure; the shell that asks and waits is txn/reading/feed.py.
"""
