"""What the configs of encoders refuse: one field with a value that cannot be.

Each raises ValueError with the name of the field and its value.
"""

from official.modeling.layers.activation import ACTIVATIONS
from official.utils.names import one_of


def at_least(config, least, *fields):
    """Refuses fields below a whole number, 0 or 1; one that is None is left to its default."""
    for field in fields:
        value = getattr(config, field)
        if value is not None and not value >= least:
            what = "negative" if least == 0 else f"less than {least}"
            raise ValueError(f"{field}: {value} is {what}")


def at_most(config, most, *fields):
    """Refuses fields above a whole number."""
    for field in fields:
        if getattr(config, field) > most:
            raise ValueError(f"{field}: {getattr(config, field)} is more than {most}")


def rates(config, *fields):
    """Refuses fields that are no rate of dropout."""
    for field in fields:
        if not 0 <= getattr(config, field) < 1:
            raise ValueError(f"{field}: {getattr(config, field)} is not in [0, 1)")


def choice(config, field, choices):
    """Refuses a field that is none of its choices."""
    one_of(field, getattr(config, field), choices)


def activation(config):
    """Refuses an activation that there is none of."""
    choice(config, "activation", sorted(ACTIVATIONS))
