"""Care of what is kept: taking a text out of it everywhere, and letting go of what nobody needs any more (SEC-12)."""
