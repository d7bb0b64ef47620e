"""Parses YAML that a user wrote: no key given twice, and a bounded number of values."""

import math
from typing import Any

import yaml

_MAX_VALUES = 100_000


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def parse(text: str) -> Any:
    """Returns the value of a YAML document; None for an empty one.

    Raises:
      yaml.YAMLError: the text is not one YAML document, or its aliases stand for too many values.
    """
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is not None and _expanded_size(node, {}) > _MAX_VALUES:
            raise yaml.YAMLError(f"its aliases stand for more than {_MAX_VALUES:,} values")
        return None if node is None else loader.construct_document(node)
    except yaml.YAMLError:
        raise
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    except Exception as error:  # PyYAML's constructors let many kinds through
        raise yaml.YAMLError(f"a value cannot be read ({error})") from None
    finally:
        loader.dispose()


def _expanded_size(node: yaml.Node, sizes: dict[yaml.Node, float]) -> float:
    """Returns how many values a node stands for when its aliases are written out."""
    if node not in sizes:
        sizes[node] = math.inf  # an alias to a node within itself has no end
        children = () if isinstance(node, yaml.ScalarNode) else node.value
        pairs = (child if isinstance(child, tuple) else (child,) for child in children)
        sizes[node] = 1 + sum(_expanded_size(item, sizes) for pair in pairs for item in pair)
    return sizes[node]
