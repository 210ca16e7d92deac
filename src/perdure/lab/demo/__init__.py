"""`python -m perdure.lab.demo`: the main job, offline, on real input: a long session, a crash, a resume."""
