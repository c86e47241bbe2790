"""What a person reads: tables, live view, text."""
