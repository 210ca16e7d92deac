"""The MCP server: memories, recall and search for any client of the Model Context Protocol (MCP-1)."""
