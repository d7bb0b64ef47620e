"""When a function runs without its graph."""

from official.serving.compute.first_call import EAGER_CALLS, Function


def made(**options):
    return Function(lambda: "eager", lambda: "graph", **options)


def test_first_calls_are_eager():
    function = made(eager=2)
    assert [function(alone=True) for _ in range(4)] == ["eager", "eager", "graph", "graph"]
    function = made()
    assert [function(alone=True) for _ in range(6)].count("eager") == EAGER_CALLS


def test_one_of_several_batches_ends_them():
    function = made(eager=2)
    assert [function(alone=alone) for alone in (True, False, True)] == ["eager", "graph", "graph"]
