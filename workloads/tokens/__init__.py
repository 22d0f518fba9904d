"""Token estimators at numpy's speed, their corpora, and how their weights are fitted."""
