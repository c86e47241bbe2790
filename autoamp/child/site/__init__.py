"""First on the child's PYTHONPATH; holds nothing but ``sitecustomize``."""
