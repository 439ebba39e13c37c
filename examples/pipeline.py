"""From publications to SQL and back: a Delta table of what flowed, a question, and the answer as publications.

Needs Spark (`pip install 'heliograph[spark]'`) and a broker with a store (`heliograph broker run --store`). Then:

    python examples/pipeline.py heliograph://127.0.0.1:4717
"""

import sys
import tempfile

import heliograph

try:
    from heliograph.pipeline.archive import start
    from heliograph.pipeline.catalogue import register
    from heliograph.pipeline.session import session
    from heliograph.pipeline.tables import LakeTables
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}; this example needs Spark: pip install 'heliograph[spark]'")


def main(address: str = "heliograph://127.0.0.1:4717") -> None:
    with heliograph.connect_blocking(address) as client:
        for number in range(30):
            client.publish(f"plant/hall-{number % 3}", f"{20 + number}", reliable=True, wait=False)
        client.flush()
        store = client.stores("plant/#")[0]

    spark = session(name="pipeline example")
    folder = tempfile.mkdtemp(prefix="heliograph-archive-")
    source = {"url": address, "subscribe": "plant/#", "startingOffsets": "earliest"}
    start(spark.readStream.format("heliograph").options(**source).load(), folder).awaitTermination()

    register(spark, LakeTables(folder))
    means = spark.sql(
        "select concat('means/', topic) as topic, string(avg(double(string(value)))) as value "
        "from events group by topic"
    )
    means.show(truncate=False)
    means.write.format("heliograph").options(url=address, store=store.id).mode("append").save()

    with heliograph.connect_blocking(address) as client, client.replay("means/#") as replay:
        for publication in replay:
            print(publication.topic, publication.payload.decode())


main(*sys.argv[1:2])
