"""Tables of Spark's catalog: `CREATE TABLE flights USING logdb OPTIONS (path "/data/flights")`.

Spark keeps the options of such a table, but does not pass them to a Python data source that reads the table; it passes
only the columns. So the columns that the source infers for a table carry its options, in the metadata of the first one.
A table that is created with a list of columns has no such metadata: its queries name the options, `WITH (path = ...)`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import StructField, StructType

OF_CATALOG: Final = ("owner", "provider", "location", "comment", "external", "is_managed_location", "collation")
"""The properties of a table in Spark's catalog, in lower case; Spark passes them to the source that infers columns."""
_METADATA: Final = "logdb.options"
_SECRET: Final = ("token",)


def defines_table(options: Mapping[str, str]) -> bool:
    """Whether these are the options of CREATE TABLE, not of a query."""
    return "owner" in {name.lower() for name in options}


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a table that carry its options, except for a token."""
    kept = {name: value for name, value in options.items() if name.lower() not in _SECRET}
    first, *others = schema.fields
    metadata = {**first.metadata, _METADATA: json.dumps(kept)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def split_options(schema: StructType) -> tuple[StructType, dict[str, str]]:
    """The columns without the options, and the options that they carry."""
    options: dict[str, str] = {}
    fields = []
    for field in schema.fields:
        metadata: dict[str, Any] = dict(field.metadata)
        options |= json.loads(metadata.pop(_METADATA, "{}"))
        fields.append(StructField(field.name, field.dataType, field.nullable, metadata))
    return StructType(fields), options
