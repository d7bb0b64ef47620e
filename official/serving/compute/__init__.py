"""How a served model computes: precision, groups of rows, graphs."""
