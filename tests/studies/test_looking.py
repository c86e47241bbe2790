"""The first look at each precision: which failures are numeric, and what is noted."""

from __future__ import annotations

import pytest
from simulated_device import Simulated, drive, machine, t4, virtual

from autoamp.measurement import Outcome
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.phases import Options, Proposal
from autoamp.studies.score import NUMERIC_OUTCOMES

OTHER_OUTCOMES = [
    Outcome.out_of_memory,
    Outcome.crashed,
    Outcome.not_effective,
    Outcome.unsupported_on_device,
]


def ending(outcome: Outcome) -> Simulated:
    """Float16 in full ends like this, whatever the variant."""

    def fails(proposal: Proposal) -> tuple[Outcome, str] | None:
        full = proposal.numerics == "full" and proposal.setting.dtype is Dtype.float16
        return (outcome, "that is how") if full else None

    return Simulated(virtual=True, fails=fails)


@pytest.mark.parametrize("outcome", OTHER_OUTCOMES)
def test_a_full_run_that_ends_for_no_numeric_reason_calls_for_no_cure(outcome: Outcome) -> None:
    done = drive(ending(outcome), virtual(), Options(all_numerics=True))
    assert not any("unstable" in p.why for p in done.proposals)
    reasons = {x.what: x.reason for x in done.result.skipped}
    assert "that is how" in reasons["O1 float16"]


@pytest.mark.parametrize("outcome", NUMERIC_OUTCOMES)
def test_a_full_run_that_ends_for_a_numeric_reason_does(outcome: Outcome) -> None:
    done = drive(ending(outcome), virtual(), Options(all_numerics=True))
    assert any("unstable" in p.why for p in done.proposals)


def amp_without_room(proposal: Proposal) -> tuple[Outcome, str] | None:
    return (Outcome.out_of_memory, "no room") if proposal.setting.is_mixed else None


def test_out_of_memory_at_the_first_look_is_noted_and_told() -> None:
    result = drive(Simulated(fails=amp_without_room), t4()).result
    noted = [x for x in result.skipped if "no room" in x.reason]
    assert {x.what for x in noted} == {"O1 float16, batch 32", "O2 float16, batch 32"}
    assert "no mixed precision worked here" in result.headline
    for name in ("O1 float16", "O2 float16"):
        assert any(x.startswith(name) and "no room" in x for x in result.why), result.why


def test_a_precision_that_works_at_a_smaller_batch_is_not_called_failed() -> None:
    def large_alone(proposal: Proposal) -> tuple[Outcome, str] | None:
        large = proposal.setting.is_mixed and (proposal.setting.batch_size or 0) >= 32
        return (Outcome.out_of_memory, "no room") if large else None

    result = drive(Simulated(fails=large_alone), t4()).result
    assert not any("no room" in x for x in result.why)
    assert any(x.reason.endswith("no room") for x in result.skipped)


def test_what_was_not_tried_is_called_so() -> None:
    result = drive(Simulated(), machine(), Options(trials=1)).result
    assert "no mixed precision was tried" in result.headline
    assert any("O1 bfloat16: not tried" in x for x in result.why)
    assert not any("worked" in x for x in (result.headline, *result.why))


def test_the_batch_that_did_not_fit_is_no_precision_that_failed() -> None:
    def overflow(setting: Setting) -> str | None:
        return "loss is inf"

    result = drive(Simulated(own_batch=512, unstable=overflow), t4()).result
    assert "no mixed precision worked here" in result.headline
    assert not any(x.startswith("as written") for x in result.why)


def o2_fails(proposal: Proposal) -> tuple[Outcome, str] | None:
    o2 = proposal.setting.amp_level is Level.O2
    return (Outcome.unsupported_on_device, "sparse gradients under O2") if o2 else None


@pytest.mark.parametrize("fewer", [1, 2, 3])
@pytest.mark.parametrize("works", [False, True])
def test_a_shorter_search_of_a_study_uses_what_a_longer_one_saw(fewer: int, works: bool) -> None:
    laws = Simulated(has_loader=False, fails=(lambda p: None) if works else o2_fails)
    longer = drive(laws, t4(), Options(trials=5))
    o2 = [p for p in longer.counted if p.setting.amp_level is Level.O2]
    assert o2
    alone = drive(laws, t4(), Options(trials=fewer))
    again = drive(laws, t4(), Options(trials=fewer), stored=longer.counted)
    new = {p.key for p in again.counted} - {p.key for p in longer.counted}
    assert len(new) < fewer, "the baseline is answered; a look without a scan is a new question"
    assert any("too few trials" in x.reason for x in alone.result.skipped) == (fewer < 3)
    assert not any("too few trials" in x.reason for x in again.result.skipped)
    if works:
        assert again.result.best.setting.amp_level is Level.O2
    else:
        reasons = {x.what: x.reason for x in again.result.skipped}
        assert "sparse gradients" in reasons["O2 float16"]


def test_what_is_stored_changes_no_question_of_the_same_search() -> None:
    laws = Simulated()
    whole = drive(laws, machine(), Options(trials=9))
    for known in (1, 4, 9):
        again = drive(laws, machine(), Options(trials=9), stored=whole.counted[:known])
        assert [p.key for p in again.proposals] == [p.key for p in whole.proposals]


def test_trials_that_no_climb_uses_go_to_what_was_never_looked_at() -> None:
    """A fixed list of one batch leaves nothing to climb to."""
    done = drive(Simulated(), machine(), Options(trials=6, batch_sizes=(32,)))
    looked = {p.setting.arithmetic for p in done.counted if p.setting.is_mixed}
    assert len(looked) == len(done.result.space.mixed) == 4
