#!/usr/bin/env bash
# Fetches what `python -m benchmarks spark` compares with into .peers: PySpark 4.0 in an environment of its own, with the
# connectors of Kafka and Delta, and a Kafka broker. These are the newest that Maven has together. Versions are fixed;
# Ivy, which Spark brings, checks what it fetches. About 600 MB. PYTHON: which Python makes the environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

place=.peers
python=$place/spark/bin/python
connectors=org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0,io.delta:delta-spark_2.13:4.0.1
broker=org.apache.kafka:kafka_2.13:4.1.0

if [ "$(cat $place/.stamp 2>/dev/null)" = "$PWD $connectors $broker" ]; then
    echo "Spark's Kafka source, delta-spark and Kafka: present"
    exit 0
fi
if [ -z "${JAVA_HOME:-}" ] && ! command -v java >/dev/null; then
    echo "There is no Java: without it, the benchmark spark reports Kafka and Delta as absent." >&2
    exit 1
fi

echo "Fetching Spark's Kafka source, delta-spark and Kafka into $place …"
"${PYTHON:-python3}" -m venv --clear $place/spark
$python -m pip install --quiet --disable-pip-version-check pyspark==4.0.0 delta-spark==4.0.1

fetch() { # a folder, packages: a session that needs the packages has Spark fetch them
    SPARK_LOCAL_IP=127.0.0.1 $python - "$PWD/$place/$1" "$2" >$place/$1.log 2>&1 <<'PYTHON' || { tail $place/$1.log >&2; exit 1; }
import sys

from pyspark.sql import SparkSession

folder, packages = sys.argv[1:]
settings = {"spark.ui.enabled": "false", "spark.jars.ivy": folder, "spark.jars.packages": packages}
SparkSession.builder.master("local[1]").config(map=settings).getOrCreate().stop()
PYTHON
}
fetch connectors $connectors
fetch kafka $broker
echo "$PWD $connectors $broker" >$place/.stamp
echo "Spark's Kafka source, delta-spark and Kafka: installed"
