"""Measuring and showing: replays, benches, reports and the demonstration."""
