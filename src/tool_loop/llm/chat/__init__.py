"""Chat completions: OpenAI's first API, which nearly every other provider speaks."""
