"""The ledger: facts taken from the history by code, without a model."""
