"""From raw text to a served model on one machine, with text that every Python has."""
