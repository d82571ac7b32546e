"""The smallest engine: one server that numbers records and keeps them in its journal. It shows everything that an
engine has to provide."""
