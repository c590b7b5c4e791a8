# %% [markdown]
# # Kvorum and Spark in ten minutes
#
# Start a node first: `.venv/bin/kvorum dev --data ./data`. A node elsewhere is named by the
# environment variable `KVORUM`, as `host:7600`. This is `spark_quickstart.py`, a script of cells;
# `python -m scripts.notebook` makes `spark_quickstart.ipynb` from it.

# %%
import json
import os
import tempfile
import time
from pathlib import Path

from pyspark.sql import functions as F

import kvorum
import kvorum.spark

ENDPOINT = os.environ.get("KVORUM", "127.0.0.1:7600")
db = kvorum.connect(f"kvorum://{ENDPOINT}")
# It starts its workers by this very Python, whether or not its environment is activated.
spark = kvorum.spark.session(
    ENDPOINT, **{"spark.master": "local[2]", "spark.sql.shuffle.partitions": 2}
)
spark.sparkContext.setLogLevel("ERROR")

# %% [markdown]
# ## A table
# The same one for Spark, SQL, HTTP and Python.

# %%
if "quickstart" not in db.namespaces():
    db.create_namespace("quickstart")
for name in ("orders", "totals"):
    if name in {table.name for table in db.tables("quickstart")}:
        db.drop_table("quickstart", name)
db.create_table(
    "quickstart",
    "orders",
    columns=[
        kvorum.Column("id", "int8", nullable=False),
        kvorum.Column("city", "text", nullable=False),
        kvorum.Column("amount", "float8"),
    ],
    primary_key=["id"],
)
db.create_table(
    "quickstart",
    "totals",
    columns=[
        kvorum.Column("city", "text", nullable=False),
        kvorum.Column("amount", "float8"),
    ],
    primary_key=["city"],
)

# %% [markdown]
# ## Write a batch
# All rows appear at once. `txnAppId` and `txnVersion` make it a no-op when it is run again.

# %%
orders = spark.range(1000).select(
    "id",
    F.element_at(
        F.array(F.lit("Oslo"), F.lit("Rome"), F.lit("Bonn")), (F.col("id") % 3 + 1).cast("int")
    ).alias("city"),
    (F.col("id") * 1.5).alias("amount"),
)
writer = orders.write.format("kvorum").mode("append").option("endpoint", ENDPOINT)
writer.option("table", "quickstart.orders").option("txnAppId", "first").option(
    "txnVersion", "1"
).save()

# %% [markdown]
# ## Read a snapshot
# The frame stays at its version, whatever is written meanwhile. Only what `where` and `columns`
# ask for comes over.

# %%
large = kvorum.spark.table(
    spark, "quickstart.orders", where="amount > 1400", columns=["id", "amount"]
)
large.orderBy("id").show(5)
print("rows over 1400:", large.count())

# %% [markdown]
# ## Several tables in one commit
# A job whose `app_id` and `version` were committed already does nothing.

# %%
totals = (
    kvorum.spark.table(spark, "quickstart.orders")
    .groupBy("city")
    .agg(F.sum("amount").alias("amount"))
)
with kvorum.spark.job(spark, "totals", app_id="totals", version=int(time.time())) as job:
    job.write(totals, "quickstart.totals", mode="overwrite")
kvorum.spark.table(spark, "quickstart.totals").orderBy("city").show()

# %% [markdown]
# ## A stream, exactly once
# Files come in, each micro-batch becomes visible as a whole, and a restart with the same checkpoint
# writes nothing twice.

# %%
folder = Path(tempfile.mkdtemp(prefix="kvorum-quickstart-"))
(folder / "in").mkdir()
rows = [{"id": 1000 + i, "city": "Kyiv", "amount": float(i)} for i in range(50)]
(folder / "in" / "1.json").write_text("\n".join(map(json.dumps, rows)))

for _ in range(2):  # the second time there is nothing left to do
    stream = spark.readStream.schema("id LONG, city STRING, amount DOUBLE").json(str(folder / "in"))
    sink = (
        stream.writeStream.format("kvorum")
        .option("endpoint", ENDPOINT)
        .option("table", "quickstart.orders")
    )
    query = (
        sink.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
print("rows:", kvorum.spark.table(spark, "quickstart.orders").count())

# %% [markdown]
# ## What changed
# Every commit as rows, in its order, with what was there before.

# %%
changes = kvorum.spark.changes(spark, "quickstart.totals")
query = changes.writeStream.format("memory").queryName("changed").trigger(availableNow=True).start()
query.awaitTermination()
spark.sql("SELECT _op, city, amount, _commit_version FROM changed ORDER BY city").show()

# %%
spark.stop()
db.close()
