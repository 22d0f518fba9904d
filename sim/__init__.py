"""The SimPy model of an inference server, experiments on it, and what may be concluded from them."""
