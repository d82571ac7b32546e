"""An outbox: a mail is sent for each sale, and for nothing else, although the mail server is not part of the database.

A sale changes the stock and appends to the log `outbox` in one transaction, so there is a mail for each sale that was
committed. A consumer sends the mails. A process can be killed between the mail and the commit of its cursor; then the
mail is sent again, with the same position, by which the mail server recognizes it. No mail is missing, and none arrives
twice.

    python3 -m examples.outbox [DIRECTORY or HOST:PORT]
"""

from __future__ import annotations

import random
import sys
import tempfile

import logdb
from logdb.named_logs import Entry

PRODUCTS = [b"apples", b"pears", b"plums"]
STOCK = 5


class MailServer:
    """A system outside of the database. `mails`: those that have arrived, by their ids."""

    def __init__(self) -> None:
        self.mails: dict[str, str] = {}
        self.requests = 0

    def send(self, mail_id: str, text: str) -> None:
        """Accept a mail; one whose id is known has arrived already."""
        self.requests += 1
        self.mails.setdefault(mail_id, text)


@logdb.transactional
def sell(txn: logdb.Transaction, customer: str, product: bytes) -> bool:
    """Sell one piece, if there is one: both the stock and the mail, or neither."""
    left = int(txn[b"stock/" + product])
    if left == 0:
        return False
    txn[b"stock/" + product] = b"%d" % (left - 1)
    txn.log("outbox").append(f"{customer}: your {product.decode()} are on the way".encode())
    return True


def send_mails(db: logdb.Database, server: MailServer, *, crashes: bool = False) -> int:
    """Send the mails up to the end of the outbox. `crashes`: end in the middle, when a mail is sent and the cursor has
    not moved. Returns the number of mails."""

    def send(txn: logdb.Transaction, entry: Entry) -> None:
        server.send(str(entry.position), entry.value.decode())
        if crashes and server.requests % 3 == 0:
            raise InterruptedError

    with db.log("outbox").consumer("mail") as consumer:
        return consumer.run(send, until_end=True)


def main(argv: list[str] | None = None) -> None:
    """Sell everything, and send the mails."""
    where = (sys.argv[1:] if argv is None else argv) or [tempfile.mkdtemp(prefix="logdb-outbox-")]
    server, draw = MailServer(), random.Random(1)
    with logdb.connect(where[0]) if ":" in where[0] else logdb.open(where[0]) as db:
        db.multi_put({b"stock/" + product: b"%d" % STOCK for product in PRODUCTS})
        sales = [sell(db, f"customer {number}", draw.choice(PRODUCTS)) for number in range(30)]
        for _ in range(3):
            try:
                send_mails(db, server, crashes=True)
            except InterruptedError:
                print("the process that sends mails has crashed")
        send_mails(db, server)
        print(f"{sum(sales)} sales, {server.requests} requests to the mail server, {len(server.mails)} mails")
        assert len(server.mails) == sum(sales)
        assert sum(int(value) for _, value in db.scan(prefix=b"stock/")) == STOCK * len(PRODUCTS) - sum(sales)


if __name__ == "__main__":
    main()
