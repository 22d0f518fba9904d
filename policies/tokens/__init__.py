"""Token estimators: how many tokens a text has, without a tokenizer."""

from policies.tokens.classes import CLASSES, class_of
from policies.tokens.counts import Counts, count_classes
from policies.tokens.estimators import (
    ByScript,
    CharsPerFour,
    Count,
    Estimator,
    Guaranteed,
    Normalised,
    Overhead,
    Table,
    estimate_request,
)

__all__ = [
    "CLASSES",
    "ByScript",
    "CharsPerFour",
    "Count",
    "Counts",
    "Estimator",
    "Guaranteed",
    "Normalised",
    "Overhead",
    "Table",
    "class_of",
    "count_classes",
    "estimate_request",
]
