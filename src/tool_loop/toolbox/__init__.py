"""What makes a function a tool, and a tool call a result."""
