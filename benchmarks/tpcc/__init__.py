"""TPC-C (revision 5.11) on LogDB and on PostgreSQL: the same transactions, inputs and number of client processes."""
