"""Run independent work items: in process, in processes."""
