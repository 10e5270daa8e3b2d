"""``python -m zonetrack.service``: the same command as ``zonetrack``, where no script directory is on the path."""

from ..clients.cli import main

if __name__ == "__main__":
    main()
