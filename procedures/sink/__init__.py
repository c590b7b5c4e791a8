"""The server side of the Spark sink: batches are staged, and become visible once.

sink_service   requests of tasks and drivers → rows staged, `kvorum.sink_commit` submitted
sink_commit    looks at the batch, and takes one of three ways:
                 few rows      the step's own transaction
                 many          large_batch: intents, then one flip (placed_rows: with those
                               that tasks have laid themselves)
                 after reading careful_batch: one ordinary transaction
sink_clean     removes what was staged
spark_job      several writes, committed as one batch of several parts
format         what writers and the node agree on
"""
