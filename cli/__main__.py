"""`python -m logdb_cli` is the `logdb` command."""

from . import main

main()
