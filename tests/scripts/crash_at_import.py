"""Fails at an import, before anything else."""

import a_module_that_nobody_has
import paddle

print(paddle, a_module_that_nobody_has)
