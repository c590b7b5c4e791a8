"""Intents of others: resolved, recovered, swept, waited for, or aborted by an id.

resolver      who meets one: is it committed, dead, or to be waited for
recovery      a parallel commit whose coordinator is gone
sweeper       what nobody meets
lock_waits    who waits at one node, and for whom; deadlock: circles of waits (pure)
aborting      by an id
"""
