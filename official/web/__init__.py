"""The page of `official.playground`: forms for what models can do, and the results."""
