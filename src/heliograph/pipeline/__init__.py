"""The data pipeline: what flows through the network becomes tables, on Spark through PySpark."""
