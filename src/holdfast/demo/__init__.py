"""`python -m holdfast.demo`: the main job, offline, on real input: a long session, its accounting, a crash, a resume."""
