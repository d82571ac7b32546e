"""The last row of each key, in the order of keys, for any keys."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from spark_export.ordering import last_of_each


@pytest.mark.parametrize("longest", [0, 1, 7, 8, 9, 20, 40])
@pytest.mark.parametrize("prefix", [b"", b"\xff\xff/", b"user/2013/"])
def test_any_keys(longest: int, prefix: bytes) -> None:
    rng = Random(longest)
    for count in (0, 1, 2, 300):
        alphabet = rng.choice([b"\0\1", b"\0a\x7f\x80\xff"])
        some = [bytes(rng.choices(alphabet, k=rng.randrange(longest + 1))) for _ in range(max(count // 3, 1))]
        keys = [prefix + rng.choice(some) for _ in range(count)]
        last = {key: at for at, key in enumerate(keys)}
        expected = [last[key] for key in sorted(last)]
        assert last_of_each(pa.array(keys, pa.binary())).tolist() == expected
        around = pa.array([b"before", *keys, b"~"], pa.binary())
        assert last_of_each(around.slice(1, count)).tolist() == expected
