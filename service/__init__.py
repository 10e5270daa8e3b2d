"""Who does it, and when: worker processes, replay, the service."""
