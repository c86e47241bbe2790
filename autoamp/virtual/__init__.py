"""The virtual accelerator: a Paddle custom device in host memory."""
