import os

import numpy as np
import pytest

from official.tokenizers import integer_table
from official.tokenizers.integer_table import IntegerTable


def rows(*values):
    return np.array(values, np.uint64)


@pytest.mark.parametrize("columns", [1, 2, 4])
def test_numbers_are_those_of_a_dictionary(columns):
    rng = np.random.default_rng(0)
    table, expected = IntegerTable(columns, 4000), {}
    for _ in range(4):
        # Half of them are small, so that rows share some of their columns.
        some = rng.integers(1 << 64, size=(1500, columns), dtype=np.uint64)
        some[::2] %= np.uint64(1 + 2000 // columns)
        wanted = [expected.get(row, 0) for row in map(tuple, some.tolist())]
        np.testing.assert_array_equal(table.find(some), wanted)
        new = [row for row in dict.fromkeys(map(tuple, some.tolist())) if row not in expected]
        new = new[: 4000 - table.count]
        added = table.add(np.array(new, np.uint64).reshape(-1, columns))
        np.testing.assert_array_equal(added, np.arange(len(new)) + len(expected) + 1)
        expected |= {row: number for number, row in enumerate(new, len(expected) + 1)}
        assert table.count == len(expected)
    assert table.count == 4000  # it is full
    np.testing.assert_array_equal(
        table.find(np.array(list(expected), np.uint64)), np.arange(1, 4001)
    )


def test_rows_of_the_same_hash():
    table = IntegerTable(2, 50)
    table._factors[:] = 0
    table.add(rows([1, 2], [2, 1], [1, 0]))
    table.add(rows([0, 1], [0, 0]))
    found = table.find(rows([0, 0], [1, 1], [1, 0], [2, 1], [0, 1], [1, 2]))
    assert found.tolist() == [5, 0, 3, 2, 4, 1]


def test_equal_rows_are_added_once():
    rng = np.random.default_rng(1)
    table = IntegerTable(2, 1000)
    table.add(rows([1 << 40, 1], [1 << 40, 2]))
    some = rng.integers(20, size=(900, 2), dtype=np.uint64)
    numbers = table.add(some)
    assert table.count == 2 + len(np.unique(some, axis=0))
    np.testing.assert_array_equal(table.find(some), numbers)
    np.testing.assert_array_equal(table.last(table.count)[numbers - 1], some)
    np.testing.assert_array_equal(np.unique(numbers), np.arange(3, table.count + 1))
    assert table.find(rows([1 << 40, 2], [1 << 40, 1])).tolist() == [2, 1]


def test_no_rows():
    table = IntegerTable(4, 3)
    assert table.find(np.zeros((0, 4), np.uint64)).tolist() == []
    assert table.find(np.zeros((1, 4), np.uint64)).tolist() == [0]
    table.add(np.zeros((0, 4), np.uint64))
    assert table.count == 0


def test_arrays_of_zeros_are_of_one_process_and_are_not_used_again():
    array = integer_table.zeros((3, 2), np.uint64)
    assert array.dtype == np.uint64 and array.tolist() == [[0, 0]] * 3
    if (child := os.fork()) == 0:
        array[:] = 7
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert array.tolist() == [[0, 0]] * 3
    array[:] = 5
    del array
    assert integer_table.zeros((3, 2), np.uint64).tolist() == [[0, 0]] * 3
