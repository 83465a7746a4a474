"""One HTTP request to a model: sockets, pools, time limits, server-sent events."""
