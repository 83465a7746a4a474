"""Keeps what a model said in a file, and says it again for nothing."""
