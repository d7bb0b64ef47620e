"""The page of `official.commands.playground`: forms for what models can do, and the results."""

MAX_BYTES = 1_000_000  # of a form
