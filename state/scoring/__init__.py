"""Scores, alarms and comparisons of forecasts, as sums."""
