"""The smallest engine: one server that numbers records and keeps them in its journal. It shows all that the
seam asks for."""
