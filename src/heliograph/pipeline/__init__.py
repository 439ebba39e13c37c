"""The data pipeline: stores network traffic in tables, with Spark through PySpark."""
