"""Where runs are kept: in memory, or in one SQLite file. Both give a run to one writer at a time."""
