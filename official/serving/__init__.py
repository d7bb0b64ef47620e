"""What a SavedModel holds: `official.export` writes it, `signatures` says what is in it.

Requests enter by `doors`, are read by the tokenizer and scored by `rows`; one module for each kind
of signature (`texts`, `rank`, `choose`, `answer`, `write`) says what goes in and what comes out.
"""
