"""The load generator: a process of its own that does one job after the other, read from stdin."""
