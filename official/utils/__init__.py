"""What all packages use: errors, atomic files, seeds, JSON, names in messages."""
