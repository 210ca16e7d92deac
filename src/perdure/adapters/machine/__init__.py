"""This machine, behind the ports: clock, files, shell, sandbox, and whom it trusts."""
