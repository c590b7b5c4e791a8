"""What several packages share. Imports nothing of Kvorum.

errors limits ids           every error, every bound, what names what
keys timestamps descriptors checksum system
                            what is stored and sent, as bytes and numbers
verbs fields                how a request is declared, and what its arguments may be
methods                     the requests to partitions; those to nodes are in verbs.py of tso,
                            procedures and kvorum/api
options ops                 maps and lists within these requests
rpc members                 frames of a connection; who leads, as a reply says it
ports adapters steady       the doors to the outside; real ones; a clock that does not leap
config config_values        settings of a node at its start
waits intents               who waits for whom; what is left of dead transactions
faults seats room traffic   bugs met, connections, disk space, what requests cost
"""
