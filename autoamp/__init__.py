"""autoamp: hardware-aware tuning of PaddlePaddle mixed-precision training."""

# The child process imports this package inside the user's program, so nothing is imported here.
__version__ = "0.1.0"
