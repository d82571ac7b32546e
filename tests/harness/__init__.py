"""What several rooms of tests share: a room imports from here and from itself (`tests/test_rooms.py`).

Processes and machines: `ports`, `forks`, `server_process`, `cluster_processes`, `slow_disk`, `faulty_disk`, `map_disk`,
`small_files`, `clocks`. Databases: `opening`, `served`, `clusters`, `secured`, `blocking`, and `worlds`, where all of
them have one interface. Cores without a network: `stage`, `mapping_histories`. What is sent: `raw`, `samples`. Long
runs: `progress`, and bugs for them: `planting`.
"""
