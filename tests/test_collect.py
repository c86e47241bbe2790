"""Outcomes from event files: written here as the child writes them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autoamp import collect, wire
from autoamp.launch import Ended
from autoamp.measurement import Label, Outcome
from autoamp.process import Exit
from autoamp.settings import Dtype, Level, Setting

VIRTUAL = wire.VirtualDevice(
    name="Tesla T4",
    alias="t4",
    architecture="Turing",
    compute_capability=(7, 5),
    memory_bytes=2**34,
    bandwidth_bytes_per_s=320e9,
    flops_per_s={"float32": 8.1e12},
)
PADDLE = {"kind": "paddle", "version": "3.3.1", "caveats": ["c"], "tf32_matmul": False}
FP16 = Setting(amp_level=Level.O1, dtype=Dtype.float16)


def end(reason: str = "steps_reached", **values: Any) -> dict[str, Any]:
    event: dict[str, Any] = {
        "kind": "end",
        "reason": reason,
        "steps": 25,
        "blocks": [[1.0, 100, 10], [1.0, 110, 10]],
        "window_wall_s": 2.0,
        "data_wait_s": 0.5,
        "losses": [[0, 2.0], [1, 1.5], [2, 1.0]],
        "skipped_steps": 0,
        "scales": [],
        "memory": {"allocated_peak_bytes": 10, "reserved_peak_bytes": 20},
        "facts": {
            "calls_auto_cast": True,
            "calls_scaler": True,
            "calls_decorate": False,
            "uses_hapi": False,
            "enables_amp": True,
            "uses_to_static": False,
            "own_level": None,
            "own_dtype": None,
            "optimizer": "AdamW",
            "optimizer_has_master_weights": True,
            "loaders": [
                {
                    "ordinal": 0,
                    "kind": "BatchSampler",
                    "site": "train.py:3",
                    "batch_size": 10,
                    "dataset_length": 100,
                    "tunable": True,
                    "reason": None,
                    "delivered": 10,
                }
            ],
        },
        "dataset_restarts": 1,
        "modules": [],
    }
    event.update(values)
    return event


def state(**values: Any) -> dict[str, Any]:
    event = {
        "kind": "state",
        "scaler_enabled": True,
        "scalers": 1,
        "parameter_dtypes": {"float32": 4},
        "on_device": True,
    }
    return {**event, **values}


def ops(**calls: list[int]) -> dict[str, Any]:
    return {"kind": "op_counts", "ops": calls}


def exit_of(
    code: int | None = 0, signal: int | None = None, killed: bool = False, **flags: bool
) -> Ended:
    return Ended(
        exit=Exit(code=code, signal=signal, killed_by_us=killed, left_behind=0),
        timed_out=flags.get("timed_out", False),
        interrupted=flags.get("interrupted", False),
        started_s=0.0,
        wall_s=5.0,
        limit_s=60.0,
    )


def make(
    tmp_path: Path,
    events: list[dict[str, Any]],
    ended: Ended | None = None,
    *,
    setting: Setting | None = None,
    log: str = "",
    virtual: bool = False,
    numerics: bool = True,
) -> Any:
    plan = wire.Plan(
        trial_dir=str(tmp_path),
        device="virtual" if virtual else "cpu",
        virtual=None
        if not virtual
        else wire.VirtualDevice(**{**vars(VIRTUAL), "numerics": numerics}),
        setting={} if setting is None else setting.to_json(),
    )
    if events:
        lines = [json.dumps({"t": float(i), **event}) for i, event in enumerate(events)]
        (tmp_path / "events-12.jsonl").write_text("\n".join(lines) + '\n{"kind": "torn')
    (tmp_path / wire.LOG_FILE).write_text(log)
    return collect.collect(plan, ended or exit_of())


def test_numbers_of_a_good_run(tmp_path: Path) -> None:
    m = make(tmp_path, [PADDLE, {"kind": "first_step"}, state(), end()])
    assert (m.outcome, m.reason) == (Outcome.ok, None)
    assert m.throughput_samples_per_s == pytest.approx(105.0)
    assert m.throughput_spread == pytest.approx(10 / 2 / 105)
    assert m.data_wait_share == pytest.approx(0.25)
    assert (m.batch_size, m.steps_done, m.steps_timed, m.samples_timed) == (10, 25, 20, 210)
    assert m.losses == (2.0, 1.5, 1.0)
    assert (m.memory_allocated_peak_bytes, m.memory_reserved_peak_bytes) == (10, 20)
    assert m.caveats == ("c",)
    assert m.tf32_matmul is False
    assert m.startup_s == 1.0
    assert {m.time_label, m.memory_label, m.numerics_label} == {Label.measured}


def test_labels_of_a_virtual_device(tmp_path: Path) -> None:
    m = make(tmp_path, [PADDLE, state(), end()], virtual=True)
    assert (m.time_label, m.memory_label, m.numerics_label) == (
        Label.modelled,
        Label.counted,
        Label.emulated,
    )
    assert m.data_wait_share is None and m.data_wait_reason


def pace(seconds: float, workers: int = 0, per_step: float = 1.0) -> dict[str, Any]:
    return {
        "seconds_per_batch": seconds,
        "batches": 9,
        "workers": workers,
        "batches_per_step": per_step,
    }


# The modelled step of ``end`` is 0.1 s, 1.6 of 2 s with work on the GPU; 10.5 samples each.
@pytest.mark.parametrize(
    ("loaders", "step_s", "wait", "busy"),
    [
        ([pace(0.05)], 0.05, 0.0, 0.8),
        ([pace(0.2, workers=2)], 0.2, 0.5, 0.4),
        ([pace(0.1, per_step=4.0)], 0.4, 0.75, 0.2),
        ([pace(0.05), pace(0.2)], 0.2, 0.5, 0.4),
    ],
    ids=["faster than the device", "slower", "accumulates four batches", "the slowest decides"],
)
def test_the_loader_of_a_virtual_device(
    tmp_path: Path, loaders: list[dict[str, Any]], step_s: float, wait: float, busy: float
) -> None:
    seen = {"kind": "loader_pace", "loaders": loaders, "reason": None}
    m = make(tmp_path, [PADDLE, state(), end(busy_s=1.6), seen], virtual=True)
    assert m.loader_s_per_step == pytest.approx(step_s)
    assert m.data_wait_share == pytest.approx(wait)
    assert m.modelled_busy_share == pytest.approx(busy)
    # The throughput is the device's, whatever the loader does.
    assert m.throughput_samples_per_s == pytest.approx(105.0)
    assert m.samples_per_s_with_loader == pytest.approx(10.5 / max(0.1, step_s))
    assert m.utilisation.gpu_percent is None


def test_a_virtual_device_without_a_timed_loader_says_why(tmp_path: Path) -> None:
    seen = {"kind": "loader_pace", "loaders": [], "reason": "no paddle.io.DataLoader"}
    m = make(tmp_path, [PADDLE, state(), end(busy_s=1.6), seen], virtual=True)
    assert m.data_wait_share is None and "no paddle.io.DataLoader" in m.data_wait_reason
    assert m.samples_per_s_with_loader is None and m.loader_reason == "no paddle.io.DataLoader"
    assert m.modelled_busy_share == pytest.approx(0.8)


def test_estimates_stay_out_of_the_counted_peaks(tmp_path: Path) -> None:
    memory = {
        "allocated_peak_bytes": 10,
        "reserved_peak_bytes": 20,
        "overhead_bytes": 5,
        "workspace_bytes": 3,
    }
    m = make(tmp_path, [PADDLE, state(), end(memory=memory)], virtual=True)
    assert (m.memory_allocated_peak_bytes, m.memory_reserved_peak_bytes) == (10, 20)
    assert (m.memory_overhead_bytes, m.memory_workspace_bytes) == (5, 3)
    assert m.memory_estimated_bytes == 8


def test_planning_computes_no_losses(tmp_path: Path) -> None:
    bad = end(losses=[[0, float("nan")]] * 3, scales=[[0, 1e-9]], skipped_steps=9)
    m = make(tmp_path, [PADDLE, state(), bad], virtual=True, numerics=False)
    assert m.outcome is Outcome.ok
    assert m.numerics_label is Label.not_computed
    assert (m.losses, m.loss_scales, m.skipped_steps) == ((), (), None)


GOOD_FP16 = [PADDLE, ops(matmul_v2=[3, 0, 0, 0]), state()]

CASES: dict[str, tuple[dict[str, Any], Outcome, str]] = {
    "interrupted": (
        {"events": [PADDLE], "ended": exit_of(None, 9, True, interrupted=True)},
        Outcome.interrupted,
        "user",
    ),
    "time-out": (
        {"events": [PADDLE], "ended": exit_of(None, 9, True, timed_out=True)},
        Outcome.timed_out,
        "no optimizer step",
    ),
    "time-out before paddle": (
        {"events": [{"kind": "armed"}], "ended": exit_of(None, 9, True, timed_out=True)},
        Outcome.timed_out,
        "paddle was never imported",
    ),
    "hooks never loaded": ({"events": []}, Outcome.no_steps, "python -I"),
    "no paddle in it": ({"events": [{"kind": "armed"}]}, Outcome.no_steps, "importing paddle"),
    "our own hooks failed": (
        {"events": [{"kind": "fault", "where": "install", "error": "KeyError: x"}]},
        Outcome.not_effective,
        "hooks could not be installed: install: KeyError: x",
    ),
    "no step": ({"events": [PADDLE]}, Outcome.no_steps, "without one optimizer step"),
    "too few steps": (
        {"events": [PADDLE, state(), end("script_end", steps=3, blocks=[])]},
        Outcome.too_few_steps,
        "3 steps",
    ),
    "ended by itself with enough": (
        {"events": [PADDLE, state(), end("script_end")]},
        Outcome.ok,
        "",
    ),
    "crash": (
        {
            "events": [
                PADDLE,
                {"kind": "exception", "type": "ValueError", "message": "bad\nx", "traceback": ""},
            ],
            "ended": exit_of(1),
        },
        Outcome.crashed,
        "ValueError: x",
    ),
    "refused by the plug-in": (
        {
            "events": [
                PADDLE,
                {
                    "kind": "exception",
                    "type": "NotImplementedError",
                    "message": "(Unimplemented) the kernel 'check_finite_and_unscale' was given a "
                    "sparse gradient. (at /x/autoamp/virtual/csrc/paddle_api.h:48)\n"
                    "  [operator < check_finite_and_unscale > error]",
                    "traceback": "",
                },
            ],
            "ended": exit_of(1),
            "virtual": True,
        },
        Outcome.unsupported_on_device,
        "NotImplementedError: (Unimplemented) the kernel 'check_finite_and_unscale' was given a "
        "sparse gradient.",
    ),
    "unimplemented by Paddle itself": (
        {
            "events": [
                PADDLE,
                {
                    "kind": "exception",
                    "type": "NotImplementedError",
                    "message": "(Unimplemented) embedding input only support int32 and int64, but "
                    "get float32 (at /paddle/paddle/phi/kernels/cpu/embedding_kernel.cc:112)\n",
                    "traceback": "",
                },
            ],
            "ended": exit_of(1),
            "virtual": True,
        },
        Outcome.crashed,
        "but get float32",
    ),
    "crash in C++": (
        {"events": [PADDLE], "ended": exit_of(None, 11)},
        Outcome.crashed,
        "signal 11",
    ),
    "own exit code": (
        {"events": [PADDLE], "ended": exit_of(3), "log": "usage: train.py\nneed --data\n"},
        Outcome.crashed,
        "exit code 3: need --data",
    ),
    "host memory": (
        {"events": [PADDLE], "ended": exit_of(None, 9)},
        Outcome.host_memory,
        "memory",
    ),
    "out of memory, caught by the script": (
        {
            "events": [PADDLE],
            "ended": exit_of(1),
            "log": "OSError: (External) ResourceExhaustedError: Out of memory error on GPU 0.\n",
        },
        Outcome.out_of_memory,
        "before the first step",
    ),
    "the host's memory under a virtual GPU": (
        {
            "events": [PADDLE, {"kind": "host_memory", "refusals": 3, "last": True}],
            "ended": exit_of(1),
            "log": "MemoryError: (ResourceExhausted) Out of memory error on vgpu:0.\n",
            "virtual": True,
        },
        Outcome.host_memory,
        "emulate the GPU before the first step",
    ),
    "the virtual GPU's memory after the host's": (
        {
            "events": [PADDLE, {"kind": "host_memory", "refusals": 3, "last": False}],
            "ended": exit_of(1),
            "log": "MemoryError: (ResourceExhausted) Out of memory error on vgpu:0.\n",
            "virtual": True,
        },
        Outcome.out_of_memory,
        "before the first step",
    ),
    "out of memory while hanging": (
        {
            "events": [PADDLE],
            "ended": exit_of(None, 9, True, timed_out=True),
            "log": "Fail to alloc memory of 12 size\n",
        },
        Outcome.out_of_memory,
        "Fail to alloc",
    ),
    "not a number": (
        {
            "events": [
                PADDLE,
                state(),
                end(losses=[[0, 1.0], [1, float("nan")], [2, float("inf")]]),
            ]
        },
        Outcome.not_finite,
        "step 1",
    ),
    "one bad loss that recovers": (
        {
            "events": [
                PADDLE,
                state(),
                end(losses=[[0, 1.0], [1, float("inf")], [2, 1.0], [3, 1.0], [4, 1.0]]),
            ]
        },
        Outcome.ok,
        "",
    ),
    "scale collapsed": (
        {"events": [*GOOD_FP16, end(scales=[[0, 65536.0], [20, 1e-3]])], "setting": FP16},
        Outcome.scale_collapsed,
        "0.001",
    ),
    "every step skipped": (
        {
            "events": [*GOOD_FP16, end(scales=[[0, 65536.0], [20, 8.0]], skipped_steps=24)],
            "setting": FP16,
        },
        Outcome.scale_collapsed,
        "24 of 25",
    ),
    "no half-precision operator": (
        {
            "events": [PADDLE, ops(matmul_v2=[0, 0, 3, 0]), state(), end()],
            "setting": FP16,
        },
        Outcome.not_effective,
        "0 operator calls in float16",
    ),
    "scaler disabled itself": (
        {
            "events": [
                PADDLE,
                ops(matmul_v2=[3, 0, 0, 0]),
                state(scaler_enabled=False),
                end(),
            ],
            "setting": FP16,
        },
        Outcome.not_effective,
        "GradScaler",
    ),
    "parameters stayed in FP32": (
        {
            "events": [*GOOD_FP16, end()],
            "setting": Setting(amp_level=Level.O2, dtype=Dtype.float16),
        },
        Outcome.not_effective,
        "decorate",
    ),
    "FP32 asked, half precision seen": (
        {
            "events": [*GOOD_FP16, end()],
            "setting": Setting(amp_level=Level.O0, dtype=Dtype.float32),
        },
        Outcome.not_effective,
        "O0",
    ),
    "batch size unchanged": (
        {"events": [PADDLE, state(), end()], "setting": Setting(batch_size=64)},
        Outcome.not_effective,
        "batch_size: wanted 64, seen 10",
    ),
    "trained on another device": (
        {"events": [PADDLE, state(on_device=False), end()]},
        Outcome.not_effective,
        "device",
    ),
    "given up": (
        {"events": [PADDLE, state(), end("too_slow", blocks=[[1.0, 10, 5]])]},
        Outcome.too_slow,
        "first block",
    ),
    "black-listed op still in 16 bits": (
        {
            "events": [*GOOD_FP16, end()],
            "setting": Setting(
                amp_level=Level.O1, dtype=Dtype.float16, custom_black_list=("matmul_v2",)
            ),
        },
        Outcome.not_effective,
        "matmul_v2 in float32",
    ),
    "black-listed op under a name that paddle does not know": (
        {
            "events": [*GOOD_FP16, end()],
            "setting": Setting(
                amp_level=Level.O1, dtype=Dtype.float16, custom_black_list=("matmul",)
            ),
        },
        Outcome.not_effective,
        "no operator of that name",
    ),
    "white-listed op in 16 bits": (
        {
            "events": [*GOOD_FP16, end()],
            "setting": Setting(
                amp_level=Level.O1, dtype=Dtype.float16, custom_white_list=("matmul_v2",)
            ),
        },
        Outcome.ok,
        "",
    ),
    "another loss scale than asked for": (
        {
            "events": [*GOOD_FP16, end(scales=[[0, 1024.0]])],
            "setting": Setting(amp_level=Level.O1, dtype=Dtype.float16, init_loss_scaling=32768.0),
        },
        Outcome.not_effective,
        "wanted 32768, seen 1024",
    ),
    "every step skipped at a static loss scale": (
        {
            "events": [*GOOD_FP16, end(scales=[[0, 65536.0]], skipped_steps=24)],
            "setting": Setting(
                amp_level=Level.O1, dtype=Dtype.float16, dynamic_loss_scaling=False
            ),
        },
        Outcome.scale_collapsed,
        "24 of 25",
    ),
    "effective": ({"events": [*GOOD_FP16, end()], "setting": FP16}, Outcome.ok, ""),
}


@pytest.mark.parametrize("name", CASES)
def test_outcomes(name: str, tmp_path: Path) -> None:
    values, outcome, reason = CASES[name]
    m = make(tmp_path, **values)
    assert m.outcome is outcome, m.reason
    assert reason in (m.reason or "")
    if outcome is Outcome.ok:
        assert m.reason is None


def test_the_process_that_trained_is_the_one_that_counts(tmp_path: Path) -> None:
    (tmp_path / "events-3.jsonl").write_text(json.dumps({"kind": "armed", "t": 0.0}) + "\n")
    m = make(tmp_path, [PADDLE, state(), end()])
    assert m.outcome is Outcome.ok and m.steps_done == 25


def test_timed_window(tmp_path: Path) -> None:
    events = [PADDLE, {"kind": "window_start"}, {"kind": "block"}, {"kind": "block"}, end()]
    make(tmp_path, events)
    assert collect.timed_window(str(tmp_path)) == (1.0, 3.0)
    assert collect.timed_window(str(tmp_path / "..")) is None


def test_a_trial_whose_hooks_could_not_be_armed(tmp_path: Path) -> None:
    (tmp_path / wire.ARMING_FAILED_FILE).write_text("TypeError: kw_only\n")
    m = make(tmp_path, [], exit_of(86))
    assert m.outcome is Outcome.crashed
    assert "was not run: TypeError: kw_only" in (m.reason or "")


def test_a_full_run_that_was_killed_is_known_by_its_last_progress(tmp_path: Path) -> None:
    progress = {
        "kind": "progress",
        "steps": 900,
        "skipped_steps": 2,
        "scales": [[880, 512.0]],
        "losses": [[850, 0.5]],
        "memory": {"allocated_peak_bytes": 7},
    }
    m = make(tmp_path, [PADDLE, progress], exit_of(None, 9))
    assert (m.steps_done, m.skipped_steps, m.final_loss_scale) == (900, 2, 512.0)
    assert m.memory_allocated_peak_bytes == 7


ON = Setting(amp_level=Level.O0, dtype=Dtype.float32, tf32=True)
OFF = replace(ON, tf32=False)


@pytest.mark.parametrize(
    ("setting", "seen", "effective"),
    [
        (ON, {"tf32_matmul": True, "tf32_conv": True}, True),
        (ON, {"tf32_matmul": False, "tf32_conv": True}, False),
        (ON, {"tf32_matmul": None, "tf32_conv": None, "tf32_why": "no switches"}, False),
        (OFF, {"tf32_matmul": False, "tf32_conv": False}, True),
        (OFF, {"tf32_matmul": False, "tf32_conv": True}, False),
        # Where nothing can be switched on, off is what there is.
        (OFF, {"tf32_matmul": None, "tf32_conv": None, "tf32_why": "no switches"}, True),
    ],
)
def test_tf32_counts_only_if_read_back(
    tmp_path: Path, setting: Setting, seen: dict[str, Any], effective: bool
) -> None:
    m = make(tmp_path, [PADDLE, state(), end(tf32=seen)], setting=setting)
    (found,) = [x for x in m.effects if x.knob == "tf32"]
    assert found.effective == effective
    assert (m.outcome is Outcome.ok) == effective
    assert (m.tf32_matmul, m.tf32_conv) == (seen["tf32_matmul"], seen["tf32_conv"])
    assert "tf32_why" not in seen or seen["tf32_why"] in found.seen


SENTENCE = "In operator matmul, the [1] dimension of Input(X) must be equal to the [0] dimension."
HINT = "[Hint: Expected K_lhs == K_rhs, but received K_lhs:3 != K_rhs:4.]"
PLACE = " (at /paddle/paddle/phi/infermeta/binary.cc:3087)"
FRAMES = (
    "\n\n--------------------------------------\nC++ Traceback (most recent call last):\n"
    "--------------------------------------\n0   paddle::pybind::eager_api_matmul(_object*)\n"
    "\n----------------------\nError Message Summary:\n----------------------\n"
)


# Shapes of paddle 3.3.1 and 2.6.2: FLAGS_call_stack_level 1 and 2, with the operator's name
# where the call came by the older way in.
@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            f"(InvalidArgument) {SENTENCE}\n  {HINT}{PLACE}\n",
            f"(InvalidArgument) {SENTENCE} {HINT}",
        ),
        (
            f"(InvalidArgument) {SENTENCE}\n  {HINT}{PLACE}\n  [operator < matmul_v2 > error]",
            f"(InvalidArgument) {SENTENCE} {HINT}",
        ),
        (f"(External) {SENTENCE}{PLACE}\n", f"(External) {SENTENCE}"),
        (
            f"{FRAMES}InvalidArgumentError: {SENTENCE}\n  {HINT}{PLACE}\n",
            f"InvalidArgumentError: {SENTENCE} {HINT}",
        ),
        (
            f"{FRAMES}UnimplementedError: {SENTENCE}{PLACE}\n  [operator < matmul_v2 > error]",
            f"UnimplementedError: {SENTENCE}",
        ),
        ("not Paddle's\nthe last line", "the last line"),
        ("the batch (at least 4) is too small", "the batch (at least 4) is too small"),
        ("", ""),
    ],
)
def test_what_an_exception_says(message: str, text: str) -> None:
    assert collect.said(message) == text


@pytest.mark.parametrize("scaler", [True, False])
def test_a_scalers_known_fault_is_told_by_runs_that_had_one(tmp_path: Path, scaler: bool) -> None:
    m = make(tmp_path, [PADDLE, state(scaler_enabled=scaler), end()])
    assert m.caveats == (("c",) if scaler else ())
