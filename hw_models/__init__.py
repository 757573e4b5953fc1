"""What hardware does with work: chip descriptions and the models of compute, memory and interconnect.

Importing it registers the compute models of this package with ``simulator.costs``.
"""

from hw_models import array_model, roofline, tile
from hw_models.loader import chip_names, load_chip, load_system, system_names

__all__ = ["array_model", "chip_names", "load_chip", "load_system", "roofline", "system_names", "tile"]
