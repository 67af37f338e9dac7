"""Risk calibration under natural labels: ``python -m research.benchmark`` plays the default beside its rivals."""
