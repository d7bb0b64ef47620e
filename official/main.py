"""`python -m official.main`: see `official.commands.main`."""

from official.commands.main import run

if __name__ == "__main__":
    run()
