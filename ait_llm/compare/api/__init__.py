"""Tables of API-level dumps, with the columns, rules and messages of msprobe's compare."""
