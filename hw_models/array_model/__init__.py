"""The ``systolic`` fidelity: whole graphs on chips with systolic arrays, by the exact cycles of ``hw_models.systolic``.

Importing it registers the model; README.md says what it counts and what it leaves out.
"""

from hw_models.array_model.model import SystolicModel
from hw_models.array_model.place import Place, places
from hw_models.array_model.plan import Plan, Products, plan

__all__ = ["Place", "Plan", "Products", "SystolicModel", "places", "plan"]
