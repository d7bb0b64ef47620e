"""`python -m official.convert`: see `official.commands.convert`."""

from official.commands.convert import run

if __name__ == "__main__":
    run()
