"""Importing this module leaves out the Python stack that TensorFlow keeps of each op of a graph.

It is there for messages only. Under pytest a stack is deep, and to walk it again for each op takes
a fifth of the time in which a graph is made.
"""

from tensorflow.python.util import tf_stack

_STACK = tf_stack.extract_stack()
tf_stack.extract_stack = lambda stacklevel=1: _STACK
