"""The ``systolic`` fidelity: whole graphs on chips with systolic arrays, by the exact cycles of ``hw_models.systolic``.

Importing it registers the model; README.md says what it counts and what it leaves out.
"""

from hw_models.array_model.model import SystolicModel
from hw_models.array_model.place import Place, places
from hw_models.array_model.plan import Plan, Products, plan
from hw_models.array_model.point import Binds, Point, Size
from hw_models.array_model.recommend import Axis, Choice, Recommendation, recommend
from hw_models.array_model.resized import Program
from hw_models.array_model.sweep import Axes, Sweep, sweep

__all__ = [
    "Axes",
    "Axis",
    "Binds",
    "Choice",
    "Place",
    "Plan",
    "Point",
    "Products",
    "Program",
    "Recommendation",
    "Size",
    "Sweep",
    "SystolicModel",
    "places",
    "plan",
    "recommend",
    "sweep",
]
