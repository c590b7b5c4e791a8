"""Durable procedures: multi-step state machines whose steps commit with their effects."""
