"""HTTP, as much of it as a request to a model takes: one POST, its reply, and what can go wrong between.

In the order in which a request meets them: `transport` (limits, caps, the exchange as its caller sees
it), `opening` (the head of a request), `pool` (connections that are kept), `dialing` with `proxies` and
`trust` (how a connection comes to be), `connection` (the protocol), `packing` (compressed bodies),
`timer` (time limits, and errors in words for people), `sse` (events out of a body), `doubles` (a
network made up for a test). docs/transport.md says why this is no HTTP library.
"""
