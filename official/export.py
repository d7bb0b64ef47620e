"""`python -m official.export`: see `official.commands.export`."""

from official.commands.export import run

if __name__ == "__main__":
    run()
