"""What `official.main` and `garden` do: a module for each mode, with its flags and its work.

The text of a module is the help of its subcommand of `garden`.
"""
