"""Who calls: for one answer or for a whole task, at given times or when answered, and what goes wrong on the way."""
