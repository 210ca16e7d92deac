"""How the history shrinks: plans, summaries, the ledger, and what comes back behind a boundary. Pure."""
