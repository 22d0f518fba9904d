"""The regression harness for token estimators: measure, compare with a baseline, draw."""
