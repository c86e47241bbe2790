"""A copy of a study in Optuna's own tables of the same database, for Optuna's dashboards.

Our tables are the truth. The mirror is brought in line at start and then follows; when it
fails, it says so once and is left for the next start, and tuning goes on.
"""

from collections.abc import Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from autoamp.measurement import Outcome, Phase
from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.records import Trial

MIRRORED = (Phase.baseline, Phase.ceiling, Phase.search)
"""Phases whose trials are points of the search. Confirm runs repeat settings, scan, numerics and
drift runs measure something else than speed."""

TIMEOUT_S = 1
"""How long one write of the mirror waits for a locked SQLite file. Optuna tries five times, so
that a copy which cannot be written holds the tuner up for some ten seconds, once."""

# Optuna refuses other choices for a name within one study, so the ranges are the widest sane
# ones and not those of the study's space. Op lists have no fixed choices: user attributes.
_LEVELS = CategoricalDistribution([str(level) for level in Level])
_DTYPES = CategoricalDistribution([str(dtype) for dtype in Dtype])
_SWITCH = CategoricalDistribution([False, True])
_BATCH = IntDistribution(1, 2**24, log=True)
_SCALE = FloatDistribution(2.0**-24, 2.0**64, log=True)
_ACCUMULATE = IntDistribution(1, 2**16, log=True)

_KEY = "autoamp_trial"


class Mirror:
    """Follows one study. No method raises: ``problem`` says what went wrong, if anything."""

    def __init__(self, url: str, study_name: str) -> None:
        self.problem: str | None = None
        self._study: optuna.Study | None = None
        self._storage: optuna.storages.RDBStorage | None = None
        self._known: set[str] = set()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            self._open(url, study_name)
        except Exception as e:
            self._give_up("open", e)

    def reconcile(self, trials: Sequence[Trial]) -> int:
        """Add what Optuna's tables lack and fail what never ended; returns how many were added.

        Only for the holder of the study's lease. A trial left RUNNING biases the default
        sampler of Optuna 5.
        """
        if self._study is None or self._storage is None:
            return 0
        try:
            for theirs in self._study.get_trials(deepcopy=False):
                if theirs.state in (TrialState.RUNNING, TrialState.WAITING):
                    self._storage.set_trial_state_values(theirs._trial_id, TrialState.FAIL)
                self._known.add(str(theirs.user_attrs.get(_KEY)))
        except Exception as e:
            self._give_up("read", e)
            return 0
        return sum(self.add(trial) for trial in trials)

    def add(self, trial: Trial) -> bool:
        """Mirror one ended trial; False if it does not belong there, is there, or failed to."""
        if self._study is None or trial.phase not in MIRRORED or trial.measurement is None:
            return False
        if _key(trial) in self._known:
            return False
        try:
            self._study.add_trial(as_optuna(trial))
        except Exception as e:
            self._give_up("write", e)
            return False
        self._known.add(_key(trial))
        return True

    def close(self) -> None:
        """Give the database free."""
        self._study = None
        if self._storage is not None:
            self._storage.remove_session()
            self._storage.engine.dispose()
            self._storage = None

    def _open(self, url: str, study_name: str) -> None:
        arguments = {"timeout": TIMEOUT_S} if url.startswith("sqlite") else {}
        self._storage = optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": arguments})
        study = optuna.create_study(
            storage=self._storage,
            study_name=study_name,
            direction="maximize",
            load_if_exists=True,
        )
        if study.user_attrs.get("made_by") != "autoamp":
            if study.get_trials(deepcopy=False):
                self.problem = (
                    f"Optuna's tables hold another program's study {study_name!r}; "
                    "it is left alone and this study is not mirrored"
                )
                return
            study.set_user_attr("made_by", "autoamp")
        self._study = study

    def _give_up(self, verb: str, error: Exception) -> None:
        # The first line: SQLAlchemy adds the statement and a link below it.
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        self.problem = (
            f"could not {verb} Optuna's copy of the study ({first}); autoamp's own tables are "
            "complete, the copy is brought in line at the next start"
        )
        self._study = None


def as_optuna(trial: Trial) -> FrozenTrial:
    """An ended trial as Optuna keeps it.

    Only an ok trial has a value. A setting that failed is PRUNED with a violated constraint:
    Optuna's TPE learns from that, and nothing is invented. An interrupted trial is FAIL, which
    teaches nothing: it was no verdict on the setting.
    """
    measurement = trial.measurement
    if measurement is None:
        raise ValueError(f"trial {trial.number} has not ended")
    params, distributions = _parameters(trial.setting)
    value = measurement.throughput_samples_per_s if measurement.ok else None
    state, constraints = TrialState.PRUNED, {str(measurement.outcome): 1.0}
    if value is not None:
        state, constraints = TrialState.COMPLETE, {}
    elif measurement.ok or measurement.outcome is Outcome.interrupted:
        state, constraints = TrialState.FAIL, {}
    attributes: dict[str, Any] = {
        _KEY: _key(trial),
        "phase": str(trial.phase),
        "outcome": str(measurement.outcome),
        "numerics": trial.numerics,
        "time_label": str(measurement.time_label),
        "memory_reserved_peak_bytes": measurement.memory_reserved_peak_bytes,
        "custom_white_list": list(trial.setting.custom_white_list),
        "custom_black_list": list(trial.setting.custom_black_list),
    }
    made = optuna.trial.create_trial(
        state=state,
        value=value,
        params=params,
        distributions=distributions,
        user_attrs={k: v for k, v in attributes.items() if v not in (None, [])},
        constraints=constraints,
    )
    made.datetime_start = trial.started_at.replace(tzinfo=None)
    ended = trial.finished_at or trial.started_at
    made.datetime_complete = ended.replace(tzinfo=None)
    return made


def _parameters(setting: Setting) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    every: tuple[tuple[str, Any, BaseDistribution], ...] = (
        ("batch_size", setting.batch_size, _BATCH),
        ("amp_level", setting.amp_level and str(setting.amp_level), _LEVELS),
        ("dtype", setting.dtype and str(setting.dtype), _DTYPES),
        ("init_loss_scaling", setting.init_loss_scaling, _SCALE),
        ("dynamic_loss_scaling", setting.dynamic_loss_scaling, _SWITCH),
        ("use_promote", setting.use_promote, _SWITCH),
        ("master_grad", setting.master_grad, _SWITCH),
        ("accumulate_steps", setting.accumulate_steps, _ACCUMULATE),
        ("tf32", setting.tf32, _SWITCH),
    )
    given = [(name, value, kind) for name, value, kind in every if value is not None]
    return {n: v for n, v, _ in given}, {n: kind for n, _, kind in given}


def _key(trial: Trial) -> str:
    # The time tells a trial from its namesake in a deleted study of the same name.
    return f"{trial.number} {trial.started_at.isoformat()}"
