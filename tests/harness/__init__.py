"""The code that several rooms of tests share: a room imports from here and from itself (`tests/test_rooms.py`).

Processes and machines: `ports`, `forks`, `server_process`, `cluster_processes`, `slow_disk`, `faulty_disk`, `map_disk`,
`small_files`, `clocks`. Databases: `opening`, `served`, `clusters`, `secured`, `blocking`, and `worlds`, which gives
all of them one interface. Cores without a network: `script`, `stage`, `mapping_histories`. Messages and configurations:
`raw`, `samples`, `examples`, `configurations`. Long runs: `progress`, and bugs for them: `planting`.
"""
