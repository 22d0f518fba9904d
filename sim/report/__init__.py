"""What a person or a program gets of an experiment: tables, pictures, the summary, the folder of results."""
