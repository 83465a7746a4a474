"""A run as a person follows it in a terminal."""
