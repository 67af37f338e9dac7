"""What tests of this folder share."""

from tests.commands import trueup

__all__ = ["trueup"]
