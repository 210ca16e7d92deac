"""What comes back behind a boundary: trackers learn what is in play, restorers bring it back (RST-1 to RST-10).

happened   tool calls with their results, and words, as trackers see them
deeds      what a call did to files, by name patterns; shell, patches and known beside it
files, todos, plan, skills, background, tools    a tracker and a restorer each
given      what the host gives again: session-start context, the memory index
registry   what a tracker and a restorer are; standard: those that come with Perdure
scene      the trackers run, at a compaction, over what happened since the last boundary
back       the restored messages, within the room that there is
"""
