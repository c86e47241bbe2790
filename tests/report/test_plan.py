"""The table of a plan, as a person reads it."""

from __future__ import annotations

import re

import msgspec
import pytest

from autoamp.report.plan import GAIN, cells, lines, next_step, sentence
from autoamp.studies import recommendation as r
from autoamp.studies.plan_table import Band, PlanRow, PlanTable, PrecisionRow, Problem

GIB = 2**30
STABLE = PrecisionRow(state="stable", reason="80 emulated steps")
REFUSED = PrecisionRow(state="refused", reason="needs compute capability 8.0")


def row(device: str, rate: float, *, band: float = 0.2, calibrated: bool = True) -> PlanRow:
    return PlanRow(
        device=device,
        gpu=device.upper(),
        memory_bytes=16 * GIB,
        band=Band(calibrated=calibrated, throughput=band, ratio=0.1, note="a note"),
        study=f"train-{device}",
        verdict="use",
        headline="use O1 float16, batch 64: 2.00x the throughput of FP32",
        recipe="O1 float16",
        batch_size=64,
        samples_per_s=rate,
        fp32_samples_per_s=rate / 2,
        fp32_batch_size=32,
        against_fp32=r.Ratio(value=2.0, low=1.8, high=2.2, basis="modelled"),
        precision_gain=r.Ratio(value=0.99),
        batch_gain=2.02,
        memory=r.Memory(
            peak_bytes=8 * GIB,
            allocated_bytes=None,
            reserved_bytes=None,
            device_used_bytes=None,
            share_of_device=0.5,
            label="counted",
        ),
        float16=STABLE,
        bfloat16=REFUSED,
    )


def failed(device: str, slug: str) -> PlanRow:
    return PlanRow(
        device=device,
        gpu=device,
        memory_bytes=4 * GIB,
        band=Band(calibrated=False, throughput=0.3, ratio=0.2, note="a note"),
        problem=Problem(slug=slug, message="what happened", remedy="what to do"),
    )


def table(*rows: PlanRow, stopped: str | None = None) -> str:
    made = PlanTable(
        schema_version=1,
        autoamp_version="0",
        created_at="now",
        command="train.py",
        labels={},
        rows=rows,
        stopped=stopped,
    )
    return "\n".join(lines(made))


def test_every_number_carries_its_label_and_band() -> None:
    text = table(row("virtual:t4", 1234.5))
    title, body = text.splitlines()[1:3]
    assert "samples/s modelled" in title and "memory counted" in title
    assert "1,234 ±20%" in body and "2.00x (1.80 to 2.20)" in body
    assert "8.0 GiB of 16.0 GiB" in body
    assert "stable" in body and "refused" in body
    assert "needs compute capability 8.0" in text
    assert "No GPU ran" in text and "emulated" in text


def test_a_gain_is_split_and_fp32_stands_beside_it() -> None:
    text = table(row("virtual:t4", 1234.0))
    title, body = text.splitlines()[1:3]
    for name, cell in (
        ("FP32 modelled", "617 at 32"),
        ("by precision", "0.99x"),
        ("by batch", "2.02x"),
    ):
        end = title.index(name) + len(name)
        assert body[:end].endswith(cell), (name, body)
    assert GAIN in text
    assert "precision 0.99x, batch 2.02x; 1,234 ±20% samples/s modelled" in sentence(
        row("virtual:t4", 1234.0)
    )
    same = msgspec.structs.replace(row("virtual:t4", 10.0), fp32_batch_size=64)
    assert "precision 0.99x" not in sentence(same)
    unsplit = msgspec.structs.replace(
        row("virtual:t4", 10.0), precision_gain=r.Ratio(reason="not run"), batch_gain=None
    )
    assert cells(unsplit)[6:8] == ["-", "-"]


def test_gpus_at_unequal_batches_are_named() -> None:
    large = msgspec.structs.replace(row("virtual:b", 9.0), batch_size=496)
    assert "64 on virtual:a, 496 on virtual:b" in table(row("virtual:a", 1.0), large)
    assert "unequal" not in table(row("virtual:a", 1.0), row("virtual:b", 9.0))
    assert "unequal" not in table(row("virtual:a", 1.0), failed("virtual:b", "x"))


def test_the_way_to_a_config_is_told_where_there_is_one() -> None:
    def made(*rows: PlanRow) -> PlanTable:
        return PlanTable(
            schema_version=1, autoamp_version="0", created_at="now", command="train.py",
            labels={}, rows=rows, stopped=None,
        )  # fmt: skip

    told = next_step(made(failed("virtual:x", "x"), row("virtual:t4", 1.0)), "train.py --lr 1")
    assert "autoamp tune --device virtual:t4 train.py --lr 1" in told[0]
    assert next_step(made(failed("virtual:x", "x")), "train.py") == []


def test_columns_stand_below_their_titles() -> None:
    text = table(row("virtual:t4", 10.0), failed("virtual:gtx1080", "baseline-out-of-memory"))
    title, *body = text.splitlines()[1:4]
    for name in ("FP16", "BF16"):
        at = title.index(name)
        assert all(line[at - 1] == " " and line[at] != " " for line in body)


def test_a_gpu_without_an_answer_keeps_its_row_and_says_why() -> None:
    text = table(row("virtual:t4", 10.0), failed("virtual:tiny", "baseline-out-of-memory"))
    assert re.search(r"virtual:tiny +does not fit", text)
    assert "what happened [baseline-out-of-memory] what to do" in text
    assert cells(failed("virtual:x", "refused-precision"))[1] == "refused"
    assert sentence(failed("virtual:x", "refused-precision")) == "what happened"


@pytest.mark.parametrize(("second", "tie"), [(90.0, True), (40.0, False)])
def test_the_fastest_may_tie_inside_the_bands(second: float, tie: bool) -> None:
    text = table(row("virtual:a", 100.0), row("virtual:b", second))
    assert "fastest by the model: virtual:a" in text
    assert ("may tie with virtual:b" in text) == tie


def test_uncalibrated_gpus_are_named() -> None:
    text = table(row("virtual:a", 1.0), row("virtual:b", 1.0, calibrated=False))
    assert re.search(r"uncalibrated.*: virtual:b$", text, re.MULTILINE)


def test_what_stops_a_plan_is_said() -> None:
    assert "stopped by the user" in table(row("virtual:a", 1.0), stopped="stopped by the user")


def test_keep_fp32_is_an_answer_with_its_reason() -> None:
    kept = msgspec.structs.replace(
        row("virtual:a", 1.0), verdict="keep_fp32", headline="keep FP32: AMP does not pay"
    )
    assert "virtual:a: keep FP32: AMP does not pay" in table(kept)


def test_estimates_stand_beside_the_counted_memory() -> None:
    plain = row("virtual:t4", 10.0)
    assert plain.memory is not None
    memory = msgspec.structs.replace(plain.memory, needed_bytes=10 * GIB, needed_label="modelled")
    found = msgspec.structs.replace(plain, memory=memory)
    assert "8.0 GiB +2.0 GiB m of 16.0 GiB" in cells(found)
    assert "8.0 GiB of 16.0 GiB" in cells(plain)


def test_every_caveat_is_told_once_with_the_gpus_it_holds_for() -> None:
    def with_caveats(device: str, *said: str) -> PlanRow:
        return msgspec.structs.replace(row(device, 10.0), caveats=said)

    slow = "the loader of this machine (num_workers=0) makes 100 samples/s: below ..."
    text = table(
        with_caveats("virtual:t4", slow, "on all", "its own batch does not fit"),
        with_caveats("virtual:v100", slow, "on all", "on all"),
        with_caveats("virtual:a100-40gb", "on all"),
    )
    assert f"virtual:t4, virtual:v100: {slow}" in text
    assert "virtual:t4: its own batch does not fit" in text
    assert "every GPU: on all" in text and text.count("on all") == 1


def test_no_leader_is_named_while_a_climb_was_cut_short() -> None:
    short = msgspec.structs.replace(row("virtual:b", 9.0), climb_cut_short="out of trials")
    text = table(row("virtual:a", 1000.0), short)
    assert "fastest by the model" not in text
    assert "no fastest GPU is named" in text and "on virtual:b (" in text


@pytest.mark.parametrize(
    ("float16", "bfloat16", "said"),
    [
        ("stable", "unstable", "FP16 and BF16 were emulated"),
        ("unstable", "refused", "; FP16 was emulated"),
        ("refused", "stable", "; BF16 was emulated"),
        ("not_looked_at", "refused", "no 16-bit numerics were emulated"),
    ],
)
def test_only_what_was_emulated_is_said_to_be(float16: str, bfloat16: str, said: str) -> None:
    found = msgspec.structs.replace(
        row("virtual:a", 1.0),
        float16=PrecisionRow(state=float16, reason="x"),  # type: ignore[arg-type]  # the four words
        bfloat16=PrecisionRow(state=bfloat16, reason="x"),  # type: ignore[arg-type]  # the four words
    )
    assert said in table(found)
