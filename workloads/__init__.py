"""What users do: arrivals, lengths, scripts, sessions, and the traces that recorded them."""
