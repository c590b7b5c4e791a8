"""Procedures that other processes run: pools of workers, and what users do with what is running.

The master's executor stays the one scheduler (limits, locks, order); workers run the steps and
commit them themselves (docs/decisions/0413).

master   crew.py (who is there, who holds what), lanes.py and start_limits.py (who is next),
         service.py
worker   worker_turns.py (turns without a roster), worker.py (the life of one)
both     messages.py, describe.py (declarations as plain data), rows.py (what is durable)
"""
