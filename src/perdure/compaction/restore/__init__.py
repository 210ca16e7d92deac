"""What comes back behind a boundary: trackers learn what is in play, restorers bring it back (RST-1 to RST-10).

registry   what a tracker and a restorer are, and the scene: the trackers run over what happened since the last boundary
files      recent files: which are in play, what is known of their text, and which lines come back
kinds      everything else, a tracker and a restorer each; and those that come with Perdure, in their order

What calls did is read in `transcript.tool_calls`; `compaction.boundary` puts the messages behind the summary.
"""
