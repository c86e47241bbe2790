import pytest

from autoamp.settings import AS_WRITTEN, Dtype, Level, Setting


def test_as_written_touches_nothing() -> None:
    assert AS_WRITTEN.is_as_written
    assert not AS_WRITTEN.is_mixed
    assert AS_WRITTEN.to_json() == {}
    assert AS_WRITTEN.describe() == "as written"


@pytest.mark.parametrize(
    "setting",
    [
        AS_WRITTEN,
        Setting(batch_size=64),
        Setting(amp_level=Level.O0, dtype=Dtype.float32),
        Setting(
            batch_size=8,
            amp_level=Level.O2,
            dtype=Dtype.float16,
            init_loss_scaling=32768.0,
            dynamic_loss_scaling=False,
            custom_white_list=("a",),
            custom_black_list=("softmax", "exp"),
            use_promote=False,
            master_grad=True,
            accumulate_steps=2,
            tf32=False,
        ),
    ],
)
def test_json_round_trip(setting: Setting) -> None:
    assert Setting.from_json(setting.to_json()) == setting


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # FP32 has neither loss scale nor op lists.
        (
            Setting(amp_level=Level.O0, init_loss_scaling=8.0, custom_black_list=("exp",)),
            Setting(amp_level=Level.O0, dtype=Dtype.float32),
        ),
        # bfloat16 needs no loss scale.
        (
            Setting(amp_level=Level.O1, dtype=Dtype.bfloat16, init_loss_scaling=8.0),
            Setting(amp_level=Level.O1, dtype=Dtype.bfloat16),
        ),
        # Lists are sets.
        (
            Setting(amp_level=Level.O1, custom_black_list=("b", "a", "a")),
            Setting(amp_level=Level.O1, custom_black_list=("a", "b")),
        ),
        # Master gradients exist at O2 only.
        (
            Setting(amp_level=Level.O1, master_grad=True),
            Setting(amp_level=Level.O1),
        ),
    ],
)
def test_equal_meaning_has_equal_keys(one: Setting, other: Setting) -> None:
    assert one.key() == other.key()


def test_different_settings_have_different_keys() -> None:
    settings = [
        Setting(batch_size=b, amp_level=level, dtype=dtype, tf32=on)
        for b in (None, 8, 16)
        for on in (None, True, False)
        for level, dtype in (
            (None, None),
            (Level.O0, Dtype.float32),
            (Level.O1, Dtype.float16),
            (Level.O1, Dtype.bfloat16),
            (Level.O2, Dtype.float16),
        )
    ]
    assert len({s.key() for s in settings}) == len(settings)


def test_unknown_knob_is_named() -> None:
    with pytest.raises(ValueError, match="learning_rate"):
        Setting.from_json({"learning_rate": 1.0})


@pytest.mark.parametrize("bad", [{"amp_level": "O9"}, {"dtype": "float8"}])
def test_bad_value_is_an_error(bad: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad.values()))):
        Setting.from_json(bad)


@pytest.mark.parametrize(
    ("setting", "precision", "described", "reduced"),
    [
        (Setting(amp_level=Level.O0, dtype=Dtype.float32), "FP32", "FP32", False),
        (Setting(amp_level=Level.O0, tf32=True), "TF32", "FP32 with TF32 products", True),
        (Setting(amp_level=Level.O0, tf32=False), "FP32", "FP32 without TF32 products", False),
        (
            Setting(amp_level=Level.O1, dtype=Dtype.bfloat16, tf32=True),
            "O1 bfloat16",
            "O1 bfloat16, tf32 True",
            True,
        ),
        (Setting(tf32=True), "as written", "as written, tf32 True", True),
    ],
)
def test_tf32_in_words(setting: Setting, precision: str, described: str, reduced: bool) -> None:
    assert (setting.precision(), setting.describe()) == (precision, described)
    assert setting.is_reduced == reduced
    assert setting.is_mixed == (precision == "O1 bfloat16")


def test_settings_stored_before_tf32_are_read() -> None:
    assert Setting.from_json({"amp_level": "O0", "dtype": "float32"}).tf32 is None
