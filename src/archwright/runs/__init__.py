"""Run folders: configuration, events, checkpoints, artifacts, resume."""
