"""An SGLang server that gets prompts as token ids: completions natively, chats where its own ids are the same."""
