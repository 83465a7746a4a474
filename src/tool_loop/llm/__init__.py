"""Models: a scripted one, the three dialects of real ones, and what wraps them."""
