"""What outlives the window: notes of a session. Pure: no clock, disk, network or async."""
