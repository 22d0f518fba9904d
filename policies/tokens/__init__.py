"""Token estimators: how many tokens a text has, without a tokenizer."""

from policies.tokens.classes import CLASSES, class_of
from policies.tokens.counts import Counts, count_classes
from policies.tokens.estimators import ByScript, CharsPerFour, Estimator

__all__ = ["CLASSES", "ByScript", "CharsPerFour", "Counts", "Estimator", "class_of", "count_classes"]
