"""The catalogue: its rows are sound, and NVML's names find the right one or none."""

import csv
import re
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoamp.errors import UsageError
from autoamp.probes import catalogue
from autoamp.probes.facts import GpuModel

MIB, GIB = 2**20, 2**30
ROWS = pytest.mark.parametrize("model", catalogue.models(), ids=lambda m: m.alias)


def test_aliases_and_names_are_unique() -> None:
    models = catalogue.models()
    for values in (
        [m.alias for m in models],
        [m.name for m in models],
        [m.nvml_name for m in models if m.nvml_name],
    ):
        assert len(set(values)) == len(values)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", m.alias) for m in models)


@ROWS
def test_every_row_has_its_source_and_sane_numbers(model: GpuModel) -> None:
    assert len(model.source) > 10
    assert 2 * GIB <= model.memory_bytes <= 512 * GIB
    assert 20 < model.bandwidth_gb_per_s < 20_000
    assert 0.5 < model.fp32_tflops < 500
    # Tensor Cores are why a half-precision rate above 2.5 times FP32 is believable; without
    # them a row must not claim tensor rates.
    if model.tensor_core_generation == 0:
        assert model.fp16_tensor_tflops is None and model.bf16_tensor_tflops is None
    if model.compute_capability < (8, 0):
        assert model.bf16_tensor_tflops is None and model.tf32_tflops is None
    for rate in (model.fp16_tensor_tflops, model.bf16_tensor_tflops):
        assert rate is None or rate >= 1.3 * model.fp32_tflops


@ROWS
def test_capability_says_the_tensor_core_generation(model: GpuModel) -> None:
    """What an unknown GPU is judged by agrees with every GPU that is known."""
    found = catalogue.tensor_core_generation(model.compute_capability, model.name)
    assert found == model.tensor_core_generation


@ROWS
def test_every_row_is_found_by_all_its_names(model: GpuModel) -> None:
    assert catalogue.find(model.alias) is model
    assert catalogue.find(model.name) is model
    assert catalogue.find(model.name.upper().replace(" ", "-")) is model
    if model.nvml_name:
        assert catalogue.find(model.nvml_name) is model


@pytest.mark.parametrize(
    "model", [m for m in catalogue.models() if m.nvml_name], ids=lambda m: m.alias
)
@pytest.mark.parametrize("share", [1.0, 0.98, 0.93])
def test_every_nvml_name_finds_its_own_row(model: GpuModel, share: float) -> None:
    """NVML reports up to 8 % less than the data sheet: ECC, what the driver keeps."""
    assert model.nvml_name is not None
    assert catalogue.match_nvml(model.nvml_name, int(share * model.memory_bytes)) is model
    assert catalogue.match_nvml(model.nvml_name, None) is model


KNOWN = [
    # name as NVML gives it, total MiB as NVML gives it, alias
    ("NVIDIA A100-SXM4-80GB", 81920, "a100-80gb"),
    ("NVIDIA A100-SXM4-40GB", 40960, "a100-40gb"),
    ("A100-SXM4-40GB", 40537, "a100-40gb"),
    ("NVIDIA A100 80GB PCIe", 81920, "a100-pcie-80gb"),
    ("NVIDIA A100-PCIE-40GB", 40960, "a100-pcie-40gb"),
    ("NVIDIA A800-SXM4-80GB", 81920, "a800-80gb"),
    ("NVIDIA A800 80GB PCIe", 81920, "a800-pcie-80gb"),
    ("NVIDIA H100 80GB HBM3", 81559, "h100"),
    ("NVIDIA H100 PCIe", 81559, "h100-pcie"),
    ("NVIDIA H800", 81559, "h800"),
    ("NVIDIA H20", 97871, "h20"),
    ("NVIDIA H200", 143771, "h200"),
    ("NVIDIA B200", 183359, "b200"),
    ("Tesla V100-SXM2-16GB", 16160, "v100-16gb"),
    ("Tesla V100-SXM2-32GB", 32510, "v100-32gb"),
    ("Tesla V100-PCIE-16GB", 16160, "v100-pcie-16gb"),
    ("Tesla V100-PCIE-32GB", 32510, "v100-pcie-32gb"),
    ("Tesla V100S-PCIE-32GB", 32510, "v100s-32gb"),
    ("Tesla P100-PCIE-16GB", 16280, "p100-pcie"),
    ("Tesla P100-SXM2-16GB", 16280, "p100-sxm2"),
    ("Tesla P40", 22919, "p40"),
    ("Tesla P4", 7611, "p4"),
    ("Tesla T4", 15109, "t4"),
    ("NVIDIA L4", 23034, "l4"),
    ("NVIDIA L40", 46068, "l40"),
    ("NVIDIA L40S", 46068, "l40s"),
    ("NVIDIA A10", 23028, "a10"),
    ("NVIDIA A10G", 23028, "a10g"),
    ("NVIDIA RTX A6000", 49140, "a6000"),
    # Three cards of 24 or 48 GB whose names differ by a word.
    ("NVIDIA RTX 6000 Ada Generation", 49140, "rtx6000-ada"),
    ("Quadro RTX 6000", 24576, "quadro-rtx6000"),
    ("NVIDIA GeForce RTX 4090 D", 24564, "rtx4090-d"),
    # The 12 GB card of that name has more cores than the 10 GB one.
    ("NVIDIA GeForce RTX 3080", 12288, "rtx3080-12gb"),
    ("NVIDIA GeForce RTX 3080", 10240, "rtx3080-10gb"),
    ("NVIDIA GeForce RTX 4060 Ti", 8188, "rtx4060-ti-8gb"),
    ("NVIDIA GeForce RTX 4060 Ti", 16380, "rtx4060-ti-16gb"),
    ("NVIDIA GeForce GTX 1660 SUPER", 6144, "gtx1660-super"),
    ("RTX A6000", 49140, "a6000"),
    ("GeForce GTX 1080", 8119, "gtx1080"),
    ("GeForce GTX 1080 Ti", 11178, "gtx1080-ti"),
    ("NVIDIA GeForce GTX 1080 Ti", 11264, "gtx1080-ti"),
    ("GeForce GTX 1060 6GB", 6078, "gtx1060"),
    ("TITAN X (Pascal)", 12196, "titan-x-pascal"),
    ("NVIDIA TITAN Xp", 12196, "titan-xp"),
    ("GeForce GTX 1660 Ti", 5944, "gtx1660-ti"),
    ("NVIDIA GeForce GTX 1660", 6144, "gtx1660"),
    ("GeForce RTX 2080 Ti", 11019, "rtx2080-ti"),
    ("NVIDIA GeForce RTX 3090", 24576, "rtx3090"),
    ("NVIDIA GeForce RTX 4090", 24564, "rtx4090"),
    ("NVIDIA GeForce RTX 5090", 32607, "rtx5090"),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None, "a100-40gb"),
    ("NVIDIA A100-SXM4-80GB MIG 1g.10gb+me", None, "a100-80gb"),
    # A Jetson: name from NVML, memory from the host.
    ("Orin (nvgpu)", 62841, "agx-orin-64gb"),
    ("Orin (nvgpu)", 30697, "agx-orin-32gb"),
    ("Orin", 15656, "orin-nx-16gb"),
]


@pytest.mark.parametrize(("name", "mib", "alias"), KNOWN)
def test_nvml_names(name: str, mib: int | None, alias: str) -> None:
    found = catalogue.match_nvml(name, None if mib is None else mib * MIB)
    assert found is not None and found.alias == alias


UNKNOWN = [
    ("Tesla V100-FHHL-16GB", 16160, "slower than either V100 with 16 GB"),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, "a laptop's chip"),
    ("NVIDIA GeForce RTX 3080 Laptop GPU", 16384, "a laptop's chip"),
    ("GeForce GTX 1060 3GB", 3019, "fewer cores than the 6 GB card"),
    ("NVIDIA GeForce GTX 1650 Ti with Max-Q Design", 4096, "another chip than the 1650"),
    ("NVIDIA H100 NVL", 95830, "94 GB, another clock"),
    ("GRID T4-8Q", 8192, "half a T4"),
    ("GeForce GTX TITAN X", 12212, "Maxwell, not Pascal's TITAN X"),
    ("NVIDIA GeForce RTX 9090", 65536, "does not exist yet"),
    ("NVIDIA GeForce RTX 3070", 16384, "no such size: a modified card"),
    ("NVIDIA GeForce RTX 3060", 8192, "fewer lanes than the 12 GB card"),
    ("Tesla K80", 11441, "too old for the catalogue"),
    ("Orin (nvgpu)", None, "which Orin cannot be told without memory"),
    ("", 8192, "no name at all"),
]


@pytest.mark.parametrize(("name", "mib", "why"), UNKNOWN)
def test_what_is_another_gpu_is_not_matched(name: str, mib: int | None, why: str) -> None:
    found = catalogue.match_nvml(name, None if mib is None else mib * MIB)
    assert found is None or found.nvml_name == name, f"{found.alias}: {why}"


@pytest.mark.parametrize(
    ("name", "some"),
    [
        ("v100", {"v100-16gb", "v100-32gb", "v100-pcie-16gb", "v100-pcie-32gb", "v100s-32gb"}),
        ("a100", {"a100-40gb", "a100-80gb", "a100-pcie-40gb", "a100-pcie-80gb"}),
        ("p100", {"p100-pcie", "p100-sxm2"}),
    ],
)
def test_an_ambiguous_name_lists_its_candidates(name: str, some: set[str]) -> None:
    with pytest.raises(UsageError) as caught:
        catalogue.find(name)
    assert caught.value.slug == "ambiguous-device"
    assert all(alias in caught.value.message for alias in some)


def test_an_unknown_name_lists_near_ones() -> None:
    with pytest.raises(UsageError) as caught:
        catalogue.find("gtx1081")
    assert caught.value.slug == "unknown-device"
    assert "gtx1080" in caught.value.message


@given(st.text(max_size=30))
def test_find_answers_or_says_why(text: str) -> None:
    try:
        assert catalogue.find(text) in catalogue.models()
    except UsageError as error:
        assert error.slug in ("unknown-device", "ambiguous-device")


@given(st.text(max_size=40), st.none() | st.integers(min_value=0, max_value=2**40))
def test_match_never_raises(name: str, memory: int | None) -> None:
    found = catalogue.match_nvml(name, memory)
    assert found is None or found in catalogue.models()


@pytest.mark.parametrize(
    ("capability", "name", "generation"),
    [
        ((6, 1), "whatever", 0),
        ((7, 5), "NVIDIA GeForce RTX 2070", 2),
        ((7, 5), "NVIDIA GeForce GTX 1650 Ti with Max-Q Design", 0),
        ((7, 5), "NVIDIA T1000", 0),
        ((7, 5), "NVIDIA GeForce MX450", 0),
        ((7, 5), "Tesla T4", 2),
        ((9, 0), "NVIDIA GH200 480GB", 4),
        ((14, 0), "NVIDIA Rubin R300", 5),
        (None, "no idea", None),
        (None, "GeForce GTX 1660 SUPER", 0),
    ],
)
def test_tensor_cores_of_unknown_gpus(
    capability: tuple[int, int] | None, name: str, generation: int | None
) -> None:
    assert catalogue.tensor_core_generation(capability, name) == generation


def test_the_file_has_no_column_that_is_not_read() -> None:
    text = resources.files("autoamp.probes").joinpath("gpus.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == len(catalogue.models())
    assert all(None not in row and None not in row.values() for row in rows)


@pytest.mark.parametrize("shape", ["1g.10gb", "1g.10gb+me", "1c.3g.40gb", "3g.40gb+gfx"])
def test_an_instances_shape_is_no_part_of_the_model(shape: str) -> None:
    found = catalogue.match_nvml(f"NVIDIA A100-SXM4-80GB MIG {shape}", None)
    assert found is not None and found.alias == "a100-80gb"
