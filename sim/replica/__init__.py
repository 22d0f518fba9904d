"""One model server: its values, who gets in and who has to go, what is held, and the process."""
