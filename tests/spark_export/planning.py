"""Drives the data source as Spark does, with all its pickling, in this process and without a JVM."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import Filter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from spark_export.source import LogDBSource

TYPES: dict[str, DataType] = {
    "ARRAY<FLOAT>": ArrayType(FloatType()),
    "BINARY": BinaryType(),
    "BIGINT": LongType(),
    "BOOLEAN": BooleanType(),
    "DATE": DateType(),
    "DECIMAL(10,2)": DecimalType(10, 2),
    "DOUBLE": DoubleType(),
    "FLOAT": FloatType(),
    "INT": IntegerType(),
    "LONG": LongType(),
    "STRING": StringType(),
    "TIME": TimeType(),
    "TIMESTAMP": TimestampType(),
    "TIMESTAMP_NTZ": TimestampNTZType(),
}


def struct(ddl: str) -> StructType:
    """The schema of simple DDL. In Spark the JVM parses it."""
    schema = StructType()
    for column in ddl.split(", "):
        name, kind = column.split(" ")
        schema.add(name.strip("`"), TYPES[kind])
    return schema


def read(path: str, schema: str | None = None, filters: Iterable[Filter] = (), **options: str) -> list[dict[str, Any]]:
    """The rows of a query whose filters are all pushed down, partition by partition. `path`: a directory or addresses
    of servers with a port."""
    return [row for part in partitions(path, schema, filters, **options) for row in part]


def partitions(
    path: str, schema: str | None = None, filters: Iterable[Filter] = (), **options: str
) -> Iterator[list[dict[str, Any]]]:
    """The rows of each partition, in their order."""
    source = pickle.loads(pickle.dumps(LogDBSource({"endpoints" if ":" in path else "path": path, **options})))
    asked = source.schema() if schema is None else struct(schema)
    reader = source.reader(asked)
    reader.narrow(list(filters))
    planned = reader.partitions()
    reader = pickle.loads(pickle.dumps(reader))
    for partition in planned:
        batches = list(reader.read(pickle.loads(pickle.dumps(partition))))
        assert all(batch.schema == to_arrow_schema(asked, timezone="UTC") for batch in batches)
        yield [row for batch in batches for row in batch.to_pylist()]
