"""PipeDream's profile format: a small graph by hand, and what is refused."""

import pytest

from plink.errors import InputError
from plink.model.pipeline.exports import profile_from_graph
from plink.model.pipeline.profile import ModelProfile

GRAPH = """\
node5 -- Linear(in_features=9) -- forward_compute_time=3.000, backward_compute_time=6.000, activation_size=40.0, parameter_size=400.000
node1 -- Input0 -- forward_compute_time=9.0, backward_compute_time=0.0, activation_size=0.0, parameter_size=0.000
node2 -- Conv2d(3, 64, kernel_size=(3, 3)) -- forward_compute_time=1.000, backward_compute_time=2.000, activation_size=100.0, parameter_size=7.000
node3 -- LSTM(4, 4) -- forward_compute_time=2.000, backward_compute_time=4.000, activation_size=[6.0; 8.0; 10.0], parameter_size=0.000
node4 -- Add(inplace) -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=50.0, parameter_size=0.0 -- stage_id=1
node6 -- __getitem__(0) -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=0.0, parameter_size=0.0
\tnode1 -- node2
\tnode2 -- node3
\tnode3 -- node4
\tnode2 -- node4
\tnode4 -- node5
\tnode3 -- node6
"""  # noqa: E501


def parsed(text: str) -> ModelProfile:
    return profile_from_graph(text, "graph.txt", 64)


def test_layers_cuts_and_units() -> None:
    """Inputs and index sinks go, times are milliseconds, a skip connection counts at every cut it crosses, once."""
    profile = parsed(GRAPH)
    assert [layer.name for layer in profile.layers] == ["node2", "node3", "node4", "node5"]
    assert [layer.kind for layer in profile.layers] == ["Conv2d", "LSTM", "Add", "Linear"]
    assert [layer.forward_s for layer in profile.layers] == [0.001, 0.002, 0.0, 0.003]
    assert [layer.crossing_bytes for layer in profile.layers] == [100, 100 + 24, 50, 0]
    assert [layer.parameter_bytes for layer in profile.layers] == [7, 0, 0, 400]
    assert (profile.minibatch, profile.method) == (64, "import")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\tnode4 -- node5", "\tnode4 -- node5\n\tnode5 -- node3", "use each other in a circle: node.* -> node"),
        ("\tnode4 -- node5", "\tnode4 -- node9", "graph.txt: line 11: there is no node node9"),
        ("\tnode4 -- node5", "\tnode4 node5", "graph.txt: line 11: an edge like"),
        ("\tnode1 -- node2\n", "", "nothing leads to node2"),
        ("forward_compute_time=2.000", "forward_compute_time=-2", "graph.txt: line 4: forward_compute_time: expected"),
        ("forward_compute_time=2.000", "forward_compute_time=nan", "graph.txt: line 4: forward_compute_time: expected"),
        ("forward_compute_time=2.000, ", "", "graph.txt: line 4: forward_compute_time is missing"),
        ("[6.0; 8.0; 10.0]", "[6.0; x]", "graph.txt: line 4: activation_size: a number was expected, got 'x'"),
        ("node3 -- LSTM", "node2 -- LSTM", "graph.txt: line 4: node2 stands in line 3 too"),
        ("node3 -- LSTM(4, 4) -- ", "node3 ", "graph.txt: line 4: a node like"),
        (GRAPH, "", "graph.txt: there is no layer in it"),
    ],
)
def test_bad_graphs_are_refused(old: str, new: str, message: str) -> None:
    assert old in GRAPH
    with pytest.raises(InputError, match=message):
        parsed(GRAPH.replace(old, new))


@pytest.mark.parametrize("description", ["Input1", "hidden"])
def test_several_inputs_are_fine(description: str) -> None:
    """So is a hidden state that a decoder begins with, as in GNMT's profile; an element of it is a layer of no cost."""
    costs = "forward_compute_time=0, backward_compute_time=0, activation_size=0, parameter_size=0"
    more = f"{GRAPH}node0 -- {description} -- {costs}\nnode7 -- __getitem__(1) -- {costs}\n"
    layers = parsed(f"{more}\tnode0 -- node7\n\tnode7 -- node4\n").layers
    assert {layer.name for layer in layers} == {"node2", "node3", "node4", "node5", "node7"}
    assert sum(layer.crossing_bytes for layer in layers if layer.name == "node7") == 124


def test_sequence_by_number_is_not_by_line() -> None:
    """node10 runs after node9."""
    profile = parsed(GRAPH.replace("node5", "node10"))
    assert [layer.name for layer in profile.layers][-1] == "node10"
