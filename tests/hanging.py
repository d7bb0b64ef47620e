"""Functions that hang, in a module whose import takes no time."""

import os
import time


def nothing():
    pass


def once(item):
    """Returns the square of a number, but for 2 in the first process that gets the file's name."""
    name, number = item
    if number == 2 and not os.path.exists(name):
        with open(name, "w"):
            time.sleep(600)
    return number * number


def always(number):
    """Returns a number that is not 1."""
    time.sleep(600 * (number == 1))
    return number
