"""What runs underneath: threads for plain functions, and a clock that can be virtual."""
