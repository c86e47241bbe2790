"""What to run next below the ceilings: everything, where that is affordable, else Optuna's TPE.

Optuna is asked and told; it never calls us. What failed is told as PRUNED with a violated
constraint: no value is made up, and the sampler still learns to stay away (it reads nothing
from FAIL). The study lives in memory and is rebuilt from the trials, so the same trials give
the same questions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial

from autoamp.settings import Dtype, Level, Setting
from autoamp.studies.proposal import Skipped
from autoamp.studies.space import Precision

MAX_MISSES = 30
"""TPE proposes what it has seen again and again on a small space; after so many in a row the
next untried setting of the grid is taken."""

WORKS = "works"
"""Name of the constraint: above 0 where a setting failed or is known to fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """The values each knob may take in the search; the first of each is the plain one."""

    precisions: tuple[Precision, ...]
    batches: tuple[int | None, ...]
    scales: tuple[float | None, ...] = (None,)
    black_lists: tuple[tuple[str, ...], ...] = ((),)
    master_grads: tuple[bool | None, ...] = (None,)
    use_promotes: tuple[bool | None, ...] = (None,)

    def setting(
        self,
        precision: Precision,
        batch: int | None,
        scale: float | None,
        black_list: tuple[str, ...],
        master_grad: bool | None,
        use_promote: bool | None,
    ) -> Setting:
        """The setting with these values, less the knobs that mean nothing to the precision."""
        low = precision.dtype is Dtype.float16 and precision.is_mixed
        o2 = precision.level is Level.O2
        return replace(
            precision.setting(batch),
            init_loss_scaling=scale if low else None,
            # bfloat16 has float32's range: what overflows float16 does not overflow there.
            custom_black_list=black_list if low else (),
            master_grad=master_grad if o2 and low else None,
            use_promote=use_promote if o2 else None,
        ).canonical()


def grid(dimensions: Dimensions) -> tuple[Setting, ...]:
    """Every distinct setting of the space; plain ones first."""
    d = dimensions
    # Rarely useful variants vary slowest, so that plain settings come first.
    product = itertools.product(
        d.use_promotes, d.master_grads, d.black_lists, d.scales, d.batches, d.precisions
    )
    out: dict[str, Setting] = {}
    for promote, master, black, scale, batch, precision in product:
        setting = d.setting(precision, batch, scale, black, master, promote)
        out.setdefault(setting.key(), setting)
    return tuple(out.values())


class Asker:
    """Proposes settings that were not tried, one at a time."""

    def __init__(self, dimensions: Dimensions, *, seed: int) -> None:
        self.dimensions = dimensions
        self.grid = grid(dimensions)
        self.skipped: dict[str, Skipped] = {}
        self._by_key = {s.key(): s for s in self.grid}
        self._tried: set[str] = set()
        self._asked: dict[str, optuna.Trial] = {}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed)
        )
        self._distributions: dict[str, BaseDistribution] = {
            "precision": CategoricalDistribution([p.name for p in dimensions.precisions]),
            # Batch and scale are ordered; their index on the ladder keeps neighbours near.
            "batch": IntDistribution(0, len(dimensions.batches) - 1),
            "scale": IntDistribution(0, len(dimensions.scales) - 1),
            "black_list": CategoricalDistribution([",".join(x) for x in dimensions.black_lists]),
            "master_grad": CategoricalDistribution([str(x) for x in dimensions.master_grads]),
            "use_promote": CategoricalDistribution([str(x) for x in dimensions.use_promotes]),
        }

    def untried(self, doomed: Callable[[Setting], str | None]) -> tuple[Setting, ...]:
        """Settings of the grid that were neither run nor are doomed."""
        out = []
        for key, setting in self._by_key.items():
            if key in self._tried:
                continue
            reason = doomed(setting)
            if reason is not None:
                self._skip(setting, reason)
                continue
            out.append(setting)
        return tuple(out)

    def learn(self, setting: Setting, *, value: float | None, failed: str | None) -> None:
        """Tell what a run showed: a throughput, or (``failed``) a violated constraint."""
        key = setting.key()
        self._tried.add(key)
        works = failed is None and value is not None
        asked = self._asked.pop(key, None)
        if asked is not None:
            if works:
                self._study.tell(asked, value)
            else:
                asked.set_constraint(WORKS, 1.0)
                self._study.tell(asked, state=TrialState.PRUNED)
            return
        params = self._params(setting)
        if params is None:
            return
        self._study.add_trial(
            create_trial(params=params, distributions=self._distributions, value=value)
            if works
            else create_trial(
                params=params,
                distributions=self._distributions,
                state=TrialState.PRUNED,
                constraints={WORKS: 1.0},
            )
        )

    def enqueue(self, settings: Iterable[Setting]) -> None:
        """Settings that look like winners: asked for first, if they were not tried."""
        for setting in settings:
            params = self._params(setting)
            if params is not None and setting.key() not in self._tried:
                self._study.enqueue_trial(params, skip_if_exists=True)

    def ask(self, trials_left: int, doomed: Callable[[Setting], str | None]) -> Setting | None:
        """The next setting to run; None when nothing is left.

        If everything left fits into the budget it is simply all run, plain settings first.
        Otherwise TPE proposes; what it repeats or what is doomed is told back as PRUNED and
        asked anew.
        """
        left = self.untried(doomed)
        if not left:
            return None
        if len(left) <= trials_left:
            return left[0]
        for _ in range(MAX_MISSES):
            trial = self._study.ask(self._distributions)
            setting = self._setting(trial.params)
            key = setting.key()
            if key in self._tried:
                self._study.tell(trial, state=TrialState.PRUNED)
                continue
            reason = doomed(setting)
            if reason is None:
                self._asked[key] = trial
                return setting
            trial.set_constraint(WORKS, 1.0)
            self._study.tell(trial, state=TrialState.PRUNED)
            self._skip(setting, reason)
        return left[0]

    def _skip(self, setting: Setting, reason: str) -> None:
        self.skipped.setdefault(setting.key(), Skipped(what=setting.describe(), reason=reason))

    def _setting(self, params: dict[str, Any]) -> Setting:
        d = self.dimensions
        names = [p.name for p in d.precisions]
        lists = [",".join(x) for x in d.black_lists]
        masters = [str(x) for x in d.master_grads]
        promotes = [str(x) for x in d.use_promotes]
        return d.setting(
            d.precisions[names.index(params["precision"])],
            d.batches[params["batch"]],
            d.scales[params["scale"]],
            d.black_lists[lists.index(params["black_list"])],
            d.master_grads[masters.index(params["master_grad"])],
            d.use_promotes[promotes.index(params["use_promote"])],
        )

    def _params(self, setting: Setting) -> dict[str, Any] | None:
        """The setting as Optuna's parameters; None if it lies outside the space."""
        if setting.key() not in self._by_key:
            return None
        d = self.dimensions
        name = setting.precision()
        return {
            "precision": name,
            "batch": d.batches.index(setting.batch_size),
            "scale": _index(d.scales, setting.init_loss_scaling),
            "black_list": ",".join(setting.custom_black_list)
            if setting.custom_black_list in d.black_lists
            else ",".join(d.black_lists[0]),
            "master_grad": str(_value(d.master_grads, setting.master_grad)),
            "use_promote": str(_value(d.use_promotes, setting.use_promote)),
        }


def _index(values: Sequence[float | None], value: float | None) -> int:
    return values.index(value) if value in values else 0


def _value(values: Sequence[bool | None], value: bool | None) -> bool | None:
    return value if value in values else values[0]
