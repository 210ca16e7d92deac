"""The gateway: Perdure between any client and its model server (`perdure serve`, GW-1 to GW-4).

A client resends its whole history with every request. Its session is found by the chain of its messages; what is new is
appended; the view goes upstream, and the answer comes back as if nothing had happened. Whatever goes wrong in between,
the request goes through as it came (REL-15).

    serving, app         who may come in, and where a request belongs
    exchange             one request, upstream and back
    requests             a request taken apart as far as is needed, and the chain of its messages
    anthropic, openai    what a protocol says, in our words and back
    sessions             which session a history belongs to: found, opened, forked, let go of
    turns                what goes upstream instead of what came
    upstream, answers    the HTTP client, and what comes back, read along
    admission, quotas    who is let in when, and how much each tenant may use
    gateway, config      what outlives a request, and what it was told
    metrics, access      what it counts, and logs of each request
    pages, reports       what it shows
    stored, background, conversations
                         what the Responses API would keep for its client
    sockets              the Responses API over a WebSocket
"""
