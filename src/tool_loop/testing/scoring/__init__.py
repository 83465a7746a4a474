"""How an agent comes out of everything that can go wrong: the cases, and how they are scored."""
