"""Typed views of a database: tables of rows with typed keys, codecs for their values, and indexes.

from logdb.tables import Json

users = db.table("users", key=int, value=Json())
users.create_index("by_email", "email", unique=True)
users.put(7, {"email": "ada@example.org", "city": "London"})
users[7]
users.index("by_email").get("ada@example.org")
with db.transaction() as txn:
    users.within(txn).delete(7)
"""

from logdb.tables.async_table import AsyncIndexView, AsyncTable, AsyncTableTransaction, AsyncTableView
from logdb.tables.codecs import Codec, Dataclass, Json, Msgpack
from logdb.tables.schema import Index, IndexState
from logdb.tables.table import IndexView, Table, TableTransaction, TableView
from logdb.tables.verification import IndexDamage, IndexesVerified

__all__ = [
    "AsyncIndexView",
    "AsyncTable",
    "AsyncTableTransaction",
    "AsyncTableView",
    "Codec",
    "Dataclass",
    "Index",
    "IndexDamage",
    "IndexState",
    "IndexView",
    "IndexesVerified",
    "Json",
    "Msgpack",
    "Table",
    "TableTransaction",
    "TableView",
]
