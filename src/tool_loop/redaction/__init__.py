"""Keys that cannot be printed, and their removal from whatever leaves the process."""
