"""Sessions in PostgreSQL, for gateways and workers on many machines (SCL-1)."""
