"""Saves the ModernBERTs of some folders by transformers 5: PARENT NAME..., to `NAME_5`."""

import sys
from pathlib import Path

import transformers


def main(parent, *names):
    """Writes the folders."""
    for name in names:
        model = transformers.ModernBertForMaskedLM.from_pretrained(Path(parent, name))
        model.save_pretrained(Path(parent, f"{name}_5"))


if __name__ == "__main__":
    main(*sys.argv[1:])
