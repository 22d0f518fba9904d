"""Client policies of LLM products: what ``max_tokens`` to ask for, what to do after a truncation, what history to send.

Pure Python on the standard library: no clock, no I/O, no simulator. What is simulated is what ships.
"""
