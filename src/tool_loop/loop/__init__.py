"""The parts of the loop: agent.py chooses what to do next, these do it."""
