"""The dashboard: pages about a server or a cluster, rendered here, that only read.

`hosting` serves the pages, `application` routes the requests, `visitors` decides who may read what, and `browsing` and
`overview` read a database in steps of bounded cost. Needs the extra `logdb[dashboard]`.
"""
