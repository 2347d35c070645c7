"""Run independent work items: in this process, in several, or on a Ray cluster."""
