"""A plugin for coding agents that people have: it keeps a record of their log, without a gateway or daemon (PLG-1).

`hook` is what the clients start, many times in a session; so it imports little before it knows that there is work.
"""
