"""OpenAI's wire forms: what a body may hold, and how an engine's events become answers."""
