"""The Spark data source. Spark finds it by this package's name."""
