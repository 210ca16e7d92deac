"""Finding what is relevant in many texts: words, an index, and rankings. Pure: no clock, disk, network or async."""
