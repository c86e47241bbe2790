"""Python code for the user's own script that does what a setting does."""

from __future__ import annotations

from autoamp.settings import Dtype, Level, Setting


def snippet(setting: Setting) -> str:
    """Ready-to-paste code; comments say what to replace. FP32 needs none beyond the batch."""
    lines: list[str] = []
    if setting.batch_size is not None:
        lines.append(f"batch_size = {setting.batch_size}  # for the training DataLoader")
    if setting.is_as_written:
        return "# the script as written\n"
    if setting.tf32 is not None:
        if lines:
            lines.append("")
        lines += [
            "# before the first step: float32 products and convolutions "
            + ("in TF32" if setting.tf32 else "without TF32"),
            f"paddle.base.core.set_cublas_switch({setting.tf32})",
            f"paddle.base.core.set_cudnn_switch({setting.tf32})",
        ]
    if not setting.is_mixed:
        if setting.tf32 is not None:
            lines = ["import paddle", "", *lines]
        if setting.amp_level is Level.O0:
            lines.append("# FP32: no paddle.amp call")
        return "\n".join(lines) + "\n"
    level = setting.amp_level or Level.O1
    dtype = setting.dtype or Dtype.float16
    half = dtype is Dtype.float16
    lines += (
        ["", "# once, after model and optimizer exist"]
        if lines
        else ["# once, after model and optimizer exist"]
    )
    if level is Level.O2:
        master = f", master_grad={setting.master_grad}" if setting.master_grad is not None else ""
        lines += [
            "model, optimizer = paddle.amp.decorate(",
            f'    models=model, optimizers=optimizer, level="O2", dtype="{dtype}"{master}',
            ")",
        ]
    if half:
        arguments = []
        if setting.init_loss_scaling is not None:
            arguments.append(f"init_loss_scaling={setting.init_loss_scaling!r}")
        if setting.dynamic_loss_scaling is not None:
            arguments.append(f"use_dynamic_loss_scaling={setting.dynamic_loss_scaling}")
        lines.append(f"scaler = paddle.amp.GradScaler({', '.join(arguments)})")
    elif level is not Level.O2:
        lines.append("# bfloat16 needs no GradScaler")
    arguments = [f'level="{level}"', f'dtype="{dtype}"']
    for name in ("custom_white_list", "custom_black_list"):
        ops = getattr(setting, name)
        if ops:
            arguments.append(f"{name}={{{', '.join(repr(op) for op in ops)}}}")
    if setting.use_promote is not None:
        arguments.append(f"use_promote={setting.use_promote}")
    lines += [
        "",
        "# each step",
        f"with paddle.amp.auto_cast({', '.join(arguments)}):",
        "    loss = criterion(model(x), y)",
    ]
    if half:
        lines += [
            "scaler.scale(loss).backward()",
            "scaler.step(optimizer)",
            "scaler.update()",
        ]
    else:
        lines += ["loss.backward()", "optimizer.step()"]
    lines.append("optimizer.clear_grad()")
    return "\n".join(("import paddle", "", *lines)) + "\n"
