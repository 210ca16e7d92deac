"""The gateway: Perdure between any client and its model server (`perdure serve`, GW-1 to GW-4).

A client resends its whole history with every request. Its session is found by the chain of its messages; what is new is
appended; the view goes upstream, and the answer comes back as if nothing had happened. Whatever goes wrong in between,
the request goes through as it came (REL-15).

    reading, digests     a request's parts, and what its messages are known by
    anthropic, openai    what a protocol says, in our words and back
    sessions, index      which session a request belongs to
    turns                what goes upstream instead of what came
    answers              what comes back, read along
    upstream             the HTTP client
    app, own             the ASGI application
"""
