"""The zonetrack command."""


def main() -> None:
    """Run the command line."""
