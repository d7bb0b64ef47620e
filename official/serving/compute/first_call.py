"""Functions whose first calls run without their graph."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from official.tokenizers import Tokenizer
from official.tokenizers.offsets import Tokens

# Of BERT base on a CPU, tracing takes as long as some ten short texts.
EAGER_CALLS = 4
EAGER_SPLITS = 8


class Function:
    """A function and its graph, which is traced when it is first needed.

    Tracing takes as long as many batches, and some processes compute few. The results of the two
    differ by rounding.

    Args:
      function: the function.
      graph: the same as a graph.
      eager: how many calls run without the graph.
    """

    def __init__(self, function: Callable, graph: Callable, eager: int = EAGER_CALLS):
        self._function = function
        self._graph = graph
        self._left = eager

    @classmethod
    def of(
        cls, function: Callable, signature: Sequence[Any], eager: int = EAGER_CALLS
    ) -> "Function":
        """Returns a function whose graph is traced from it, for inputs of the specs `signature`."""
        graph = tf.function(function, input_signature=signature, autograph=False)
        return cls(function, graph, eager)

    def __call__(self, *inputs: Any, alone: bool) -> Any:
        """Calls the function.

        Args:
          *inputs: its inputs.
          alone: whether the call computes the only batch of something. If it is one of the first,
            it runs without the graph.
        """
        first = alone and self._left > 0
        self._left = self._left - 1 if first else 0
        return self._function(*inputs) if first else self._graph(*inputs)


def split_with_offsets(tokenizer: Tokenizer) -> Callable[[tf.Tensor, bool], Tokens]:
    """Returns the tokenizer's `tokenize_with_offsets` for one caller, who calls it again and again.

    Without a graph a call takes some 0.2 s, however short the texts are, and tracing takes as long
    as some `EAGER_SPLITS` of them.
    """
    signature = [tf.TensorSpec([None], tf.string)]
    by_special = {
        special: Function.of(
            functools.partial(tokenizer.tokenize_with_offsets, special=special),
            signature,
            EAGER_SPLITS,
        )
        for special in (False, True)
    }
    return lambda texts, special: by_special[special](texts, alone=True)
