"""A user's own start-up file; train.py beside it wants it to have run."""

import os

os.environ["USER_SITECUSTOMIZE"] = "ran"
