"""Benchmarks: `python -m bench NAME …` prints one JSON line per case. How to read them is in
docs/performance.md.

    stats.py, goals.py, report.py    pure: percentiles and medians, goals and verdicts, Markdown
    machine.py, node.py              what /proc says; a node of our own in a temporary folder
    closed_loop.py, native.py, web.py, pipelined.py, sdk.py    the clients
    worker.py, load.py               client processes, and one measured window over them
    kv.py, procedures.py, spark.py, memory.py, recovery.py     what is measured
    peers.py, compare.py             other stores in the same minutes, and the ratios

A benchmark starts what it needs, on loopback, and stops it by pid.
"""
