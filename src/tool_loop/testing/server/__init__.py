"""A loopback HTTP server that fails on schedule."""
