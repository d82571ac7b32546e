"""The database as a program sees it: its verbs, the seam to what answers them, opening and inspecting one."""
