"""What a server says when it refuses or fails, read into one `ProviderError`."""
