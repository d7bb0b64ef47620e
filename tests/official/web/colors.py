"""Contrasts of colors by WCAG 2.1. A color has red, green and blue from 0 to 255."""

import re


def read(text):
    """The color of `#rrggbb`, `29 78 216`, `rgb(29, 78, 216)` or `rgba(...)`, and its opacity."""
    if text.startswith("#"):
        return tuple(bytes.fromhex(text[1:])), 1.0
    *color, opacity = [*map(float, re.findall(r"[\d.]+", text)), 1.0][:4]
    return tuple(color), opacity


def over(color, opacity, below):
    """A color with an opacity over another one."""
    return tuple(opacity * a + (1 - opacity) * b for a, b in zip(color, below, strict=True))


def contrast(one, other):
    """From 1 (the same) to 21 (black and white)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(color):
    parts = [x / 255 for x in color]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
