"""Generates the Python code of all .proto files, those of the engines included: `python -m logdb.wire.proto`.

Run it after each change of a schema. The code is committed, so only a change of the schema needs protoc
(`grpcio-tools`, in the extra `dev`).
"""

from __future__ import annotations

import sys
from importlib import resources
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent


def generated(root: Path) -> list[Path]:
    """The generated files below a root of imports."""
    return [path for path in (root / "logdb").rglob("*_pb2*") if path.suffix in (".py", ".pyi")]


def generate(into: Path) -> None:
    """Write the code of all .proto files below `into`, a root of imports. Raises RuntimeError."""
    from grpc_tools import protoc

    schema = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "logdb").rglob("*.proto"))
    outputs = [f"--{kind}_out={into}" for kind in ("python", "pyi")]
    services = [name for name in schema if "\nservice " in (ROOT / name).read_text()]
    well_known = str(resources.files("grpc_tools") / "_proto")
    for flags, names in ((outputs, schema), ([f"--grpc_python_out={into}"], services)):
        if protoc.main(["protoc", f"-I{ROOT}", f"-I{well_known}", *flags, *names]):
            raise RuntimeError("protoc failed; its messages are above")


if __name__ == "__main__":
    generate(ROOT)
    sys.stdout.write("".join(f"{path.relative_to(ROOT)}\n" for path in sorted(generated(ROOT))))
