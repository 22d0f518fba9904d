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
    Scaled,
    Table,
    estimate_request,
)
from policies.tokens.weights import estimator_named, estimator_names

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
    "Scaled",
    "Table",
    "class_of",
    "count_classes",
    "estimate_request",
    "estimator_named",
    "estimator_names",
]
