"""Finds what is wrong with recorded data: what, where, and what to do about it. NumPy only."""

from data.validate.finding import Finding, Kind, Report, Severity
from data.validate.run import Validator, validate
from data.validate.thresholds import Thresholds

__all__ = ["Finding", "Kind", "Report", "Severity", "Thresholds", "Validator", "validate"]
