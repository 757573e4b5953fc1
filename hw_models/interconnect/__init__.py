"""What links do with work: topologies, collective algorithms, their closed forms, and the choice between them."""

from hw_models.interconnect.memo import Collectives
from hw_models.interconnect.prediction import Option, Prediction, bus_factor, predict

__all__ = ["Collectives", "Option", "Prediction", "bus_factor", "predict"]
