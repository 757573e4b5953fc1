"""What sharding gives: the graphs and bytes of one rank for one part of the model."""

from dataclasses import dataclass

from simulator.graph import OperatorGraph


@dataclass(frozen=True, slots=True)
class Stage:
    """One chunk of layers as the first rank of its stage runs it; chunk *index* stands on pipeline rank index % pp.

    layers            numbers of its layers; the first stage has the embedding too, the last one the head.
    forward           of one microbatch, tensor-parallel and expert collectives included; no send or receive.
    backward          of one microbatch, recomputation included; adds to the gradients that are there.
    last_backward     of the last microbatch of a step: with the data-parallel reduction of each bucket of gradients
                      as soon as they are complete (zero=2|3 reduces in every microbatch: both are the same then).
    optimizer         after it: gradients that tensor or pipeline ranks share, the update, and for zero=1|2 the gather
                      of weights.
    send_bytes        activations for the next stage, of one microbatch; their gradients come back with as many.
    weight_bytes      resident on the rank, as are *gradient_bytes* and *optimizer_bytes*.
    activation_bytes  kept from the forward to the backward pass of one microbatch.
    peak_forward_bytes, peak_backward_bytes  most bytes of activations in use at once during the pass of one
                      microbatch, what is kept of that microbatch (and gathered weights of zero=3) included.
    notes             what was not divided, and why.
    """

    index: int
    layers: tuple[int, ...]
    forward: OperatorGraph
    backward: OperatorGraph
    last_backward: OperatorGraph
    optimizer: OperatorGraph
    send_bytes: int
    weight_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    peak_forward_bytes: int
    peak_backward_bytes: int
    notes: tuple[str, ...] = ()
