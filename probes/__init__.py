"""What can this machine do for mixed precision, and why."""
