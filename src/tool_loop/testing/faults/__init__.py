"""Everything that can go wrong in a run, by name, and where it strikes."""
