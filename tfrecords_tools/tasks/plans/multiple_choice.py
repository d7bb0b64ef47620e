"""Flags of questions with several choices."""

from official.utils.flag_table import Flag

FLAGS = (
    Flag(
        "choice_first",
        bool,
        False,
        "choices: put question and choice before the context, as RoBERTa does; default: behind it",
    ),
    Flag(
        "max_choice_length",
        int,
        None,
        "choices: cut question and choice at this number of tokens (RoBERTa: 128); default: no cut",
        least=1,
    ),
)
