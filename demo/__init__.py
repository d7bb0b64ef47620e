"""A demo from raw text to a served model, with text that every Python installation has."""
