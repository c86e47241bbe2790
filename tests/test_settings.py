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
        Setting(batch_size=b, amp_level=level, dtype=dtype)
        for b in (None, 8, 16)
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
