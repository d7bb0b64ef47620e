"""corruption."""
