"""The terminal doors of the agent: a conversation (`chat`), and one prompt without anybody to ask (`run`) (CLI-1)."""
