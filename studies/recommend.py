"""From the search's result to the recommended config."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone

from autoamp import __version__
from autoamp.measurement import Label, Measurement, Phase
from autoamp.probes.facts import Identity, Machine
from autoamp.settings import Dtype, Setting
from autoamp.studies import recommendation as r
from autoamp.studies.confirm import Interval, t95
from autoamp.studies.drift import DriftCheck, tail_loss
from autoamp.studies.loading import loader_caveat
from autoamp.studies.proposal import Choice, Result, recipe
from autoamp.studies.score import peak_memory_bytes, shown_peak_bytes
from autoamp.studies.script_identity import ScriptIdentity
from autoamp.studies.snippet import snippet

LABELS = {
    "measured": "seen on the device itself",
    "counted": "bytes that Paddle really asked for, held against the virtual GPU's capacity",
    "emulated": "computed on the CPU with the 16-bit type's rounding at operator borders",
    "modelled": "calculated from operation and byte counts; no GPU ran",
    "not_computed": "planning mode: large kernels were not computed, losses mean nothing",
}


def build(
    result: Result,
    *,
    study: str,
    script: ScriptIdentity,
    command: str,
    wall_s: float,
    error_band_note: str | None = None,
    created_at: datetime | None = None,
) -> r.Recommendation:
    """The recommended config of a finished search.

    ``command`` is the script with its arguments as typed; ``error_band_note`` says how far the
    modelled times of a virtual device may be off.
    """
    now = created_at or datetime.now(timezone.utc)
    total = result.space.memory_total_bytes
    fp32 = None
    if result.fp32 is not None and result.fp32_setting is not None:
        fp32 = measured(
            result.fp32_setting,
            _runs_of(result, result.fp32_setting, result.fp32),
            _stability_of(result, result.fp32_setting),
            total,
        )
    return r.Recommendation(
        schema_version=r.SCHEMA_VERSION,
        autoamp_version=__version__,
        created_at=now.astimezone(timezone.utc).isoformat(timespec="seconds"),
        study=study,
        verdict=result.verdict,  # type: ignore[arg-type]  # the search's three words, tested
        headline=result.headline,
        why=result.why,
        default=result.default,  # type: ignore[arg-type]  # best or at_your_batch, tested
        default_reason=result.default_reason,
        best=_recommended(result, result.best),
        at_your_batch=_recommended(result, result.at_your_batch),
        as_written=measured(result.as_written_setting, (result.as_written,), (), total),
        script_batch=result.script_batch,
        fp32=fp32,
        fp32_reason=result.fp32_reason,
        mixed=None if result.mixed is None else _recommended(result, result.mixed),
        drift=tuple(_drift(x) for x in result.drift),
        scan=_scan(result),
        learning_rate_advice=learning_rate_advice(
            result.script_batch, result.best.setting.batch_size
        ),
        caveats=result.caveats + _loader_caveats(result),
        labels={name: LABELS[name] for name in sorted(_labels_used(result))},
        error_band=error_band_note or None,
        machine=machine_record(result.machine),
        script=r.ScriptRecord(
            entry=script.entry,
            is_module=script.is_module,
            arguments=script.arguments,
            files=tuple(r.ScriptFile(path=f.path, sha256=f.sha256) for f in script.files),
            command=command,
            calls_amp=result.facts.amp_in_effect,
            optimizer=result.facts.optimizer,
            scheduled_by=result.facts.scheduled_by,
            hooks=r.HooksRecord(
                calls_auto_cast=result.facts.calls_auto_cast,
                calls_scaler=result.facts.calls_scaler,
                calls_decorate=result.facts.calls_decorate,
                uses_hapi=result.facts.uses_hapi,
                enables_auto_cast=result.facts.own_level is not None,
                loaders=tuple(
                    r.LoaderRecord(ordinal=x.ordinal, kind=x.kind, site=x.site)
                    for x in result.facts.loaders
                    if x.tunable
                ),
            ),
        ),
        search=_search(result, wall_s),
    )


def measured(
    setting: Setting,
    runs: Sequence[Measurement],
    stability: Sequence[Measurement],
    device_bytes: int | None,
) -> r.Measured:
    """What the runs of one setting showed; the first run gives what is not averaged."""
    first = runs[0]
    throughput = _throughput(runs)
    peaks = [x for m in runs if (x := shown_peak_bytes(m)) is not None]
    peak = max(peaks) if peaks else None
    needs = [x for m in runs if (x := peak_memory_bytes(m)) is not None]
    needed = max(needs) if needs else None
    virtual = first.time_label is Label.modelled
    use = first.utilisation
    return r.Measured(
        setting=r.SettingRecord.of(setting),
        description=setting.describe(),
        batch_size=first.batch_size or setting.batch_size,
        throughput=throughput,
        seconds_per_1000_samples=None
        if not throughput.samples_per_s
        else 1000 / throughput.samples_per_s,
        memory=r.Memory(
            peak_bytes=peak,
            allocated_bytes=first.memory_allocated_peak_bytes,
            reserved_bytes=first.memory_reserved_peak_bytes,
            device_used_bytes=use.memory_used_peak_bytes,
            share_of_device=needed / device_bytes if needed and device_bytes else None,
            label=first.memory_label.value,
            reason=first.memory_reason or (None if peak is not None else "not recorded"),
            overhead_bytes=first.memory_overhead_bytes,
            workspace_bytes=first.memory_workspace_bytes,
            needed_bytes=needed if virtual else None,
            needed_label=Label.modelled.value if virtual else None,
        ),
        utilisation=r.UtilisationRecord(
            gpu_percent=use.gpu_percent,
            power_mean_w=use.power_mean_w,
            energy_j=use.energy_j,
            reason=use.reason or (None if use.gpu_percent is not None else "not sampled"),
            modelled_busy_share=first.modelled_busy_share,
        ),
        data_wait_share=first.data_wait_share,
        data_wait_reason=first.data_wait_reason
        or (None if first.data_wait_share is not None else "not recorded"),
        data_wait_label=first.time_label.value,
        loading=_loading(first) if virtual else None,
        numerics=_numerics(runs, stability),
        tf32_matmul=first.tf32_matmul,
        tf32_conv=first.tf32_conv,
    )


def _loader_caveats(result: Result) -> tuple[str, ...]:
    found = loader_caveat(result.best.first, result.fp32, keeps_fp32=result.verdict == "keep_fp32")
    return () if found is None else (found,)


def _loading(first: Measurement) -> r.Loading:
    return r.Loading(
        loader_samples_per_s=first.loader_samples_per_s,
        samples_per_s=first.samples_per_s_with_loader,
        workers=first.loader_workers,
        label=Label.modelled.value,
        reason=first.loader_reason,
    )


def learning_rate_advice(own_batch: int | None, batch: int | None) -> str | None:
    """What is commonly done about the learning rate; None if the batch stays."""
    if own_batch is None or batch is None or own_batch == batch:
        return None
    factor = batch / own_batch
    return (
        f"batch {own_batch} -> {batch}: the learning rate was tuned for {own_batch}. Common "
        f"advice: for SGD with momentum scale it by {factor:.3g} (linear rule) with a warm-up of "
        f"a few epochs; for Adam-like optimizers by about {math.sqrt(factor):.3g} (square root "
        "rule). Check the validation metric either way; autoamp does not change it"
    )


def machine_record(machine: Machine) -> r.MachineRecord:
    """The machine as the file keeps it."""
    device, host, paddle = machine.device, machine.host, machine.paddle
    capability = device.compute_capability
    return r.MachineRecord(
        device=device.name,
        device_kind=device.kind.value,
        paddle_name=device.paddle_name,
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        tensor_core_generation=device.tensor_core_generation,
        memory_bytes=device.memory_total_bytes,
        mig=device.mig,
        identity=identity_record(machine.identity),
        hostname=host.hostname,
        os=host.os,
        driver=host.driver_version,
        driver_cuda=host.driver_cuda_version,
        paddle=paddle.version,
        paddle_build=paddle.distribution,
        cuda=paddle.cuda_version,
        cudnn=paddle.cudnn_version,
        numpy=paddle.numpy_version,
        python=paddle.python_version,
    )


def identity_record(identity: Identity) -> r.IdentityRecord:
    return r.IdentityRecord(
        device=identity.device,
        memory_gib=identity.memory_gib,
        mig=identity.mig,
        paddle=identity.paddle,
        cuda=identity.cuda,
    )


def identity_of(record: r.IdentityRecord) -> Identity:
    """The identity in a file, to hold against the machine at hand."""
    return Identity(
        device=record.device,
        memory_gib=record.memory_gib,
        mig=record.mig,
        paddle=record.paddle,
        cuda=record.cuda,
    )


def _recommended(result: Result, choice: Choice) -> r.Recommended:
    no_fp32 = result.fp32_reason or "FP32 was not run"
    return r.Recommended(
        measured=measured(
            choice.setting, choice.runs, choice.stability, result.space.memory_total_bytes
        ),
        confirmed=choice.confirmed,
        against_fp32=_ratio(choice.against_fp32, no_fp32),
        against_as_written=_ratio(
            choice.against_as_written, "the script as written was not timed"
        ),
        precision_gain=_ratio(choice.precision_gain, choice.split_reason or "not split"),
        batch_gain=choice.batch_gain,
        reason=choice.reason,
        snippet=snippet(choice.setting),
    )


def _ratio(interval: Interval | None, missing: str) -> r.Ratio:
    if interval is None:
        return r.Ratio(reason=missing)
    return r.Ratio(
        value=interval.ratio,
        low=interval.low,
        high=interval.high,
        basis=interval.basis,
        reason=None if interval.known else interval.basis,
    )


def _throughput(runs: Sequence[Measurement]) -> r.Throughput:
    first = runs[0]
    label: r.LabelName = first.time_label.value
    values = [x for m in runs if (x := m.throughput_samples_per_s)]
    if not values:
        return r.Throughput(samples_per_s=None, runs=len(runs), basis="not timed", label=label)
    if first.time_label is Label.modelled:
        return r.Throughput(
            samples_per_s=values[0],
            runs=len(values),
            basis="modelled times repeat exactly; their error band is that of the model",
            label=label,
        )
    # The first run chose the setting and is biased upwards by that; fresh ones are not.
    fresh = values[1:] or values
    mean = sum(fresh) / len(fresh)
    low = high = None
    basis = "one run: no interval"
    if len(fresh) > 1:
        variance = sum((x - mean) ** 2 for x in fresh) / (len(fresh) - 1)
        half = t95(len(fresh) - 1) * math.sqrt(variance / len(fresh))
        low, high = max(0.0, mean - half), mean + half
        basis = f"mean of {len(fresh)} fresh runs with its 95 % t interval"
    return r.Throughput(
        samples_per_s=mean,
        low=low,
        high=high,
        runs=len(values),
        spread=first.throughput_spread,
        basis=basis,
        label=label,
    )


def _numerics(runs: Sequence[Measurement], stability: Sequence[Measurement]) -> r.Numerics:
    seen = [m for m in stability if m.numerics_label is not Label.not_computed]
    source = max(seen, key=lambda m: m.steps_done) if seen else runs[0]
    computed = source.numerics_label is not Label.not_computed
    reason = None if computed else "numerics were not computed in these runs"
    loss = tail_loss(source) if computed else None
    return r.Numerics(
        label=source.numerics_label.value,
        skipped_steps=source.skipped_steps if computed else None,
        steps=source.steps_done,
        final_loss_scale=source.final_loss_scale if computed else None,
        zero_gradient_share=source.zero_gradient_share if computed else None,
        final_loss=loss if loss is not None and math.isfinite(loss) else None,
        reason=reason,
    )


def _drift(check: DriftCheck) -> r.Drift:
    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    return r.Drift(
        setting=r.SettingRecord.of(check.setting),
        description=recipe(check.setting).describe(),
        batch_size=check.batch,
        steps=check.steps,
        fp32_losses=tuple(x for x in check.fp32_losses if math.isfinite(x)),
        candidate_loss=finite(check.candidate_loss),
        difference=finite(check.difference),
        tolerance=finite(check.tolerance),
        tolerance_basis=check.tolerance_basis,
        passed=check.passed,
        why=check.why,
        at_recommended_batch=check.own_batch_why,
        label=check.label.value,
    )


def _scan(result: Result) -> r.ScanRecord | None:
    scan, window = result.scan, result.scale_window
    if scan is None:
        return None
    return r.ScanRecord(
        grad_exponent_min=scan.grad_exponent_min,
        grad_exponent_max=scan.grad_exponent_max,
        scale_exponent_low=None if window is None else window.low,
        scale_exponent_high=None if window is None else window.high,
        scale_exponent_chosen=None if window is None else window.chosen,
        kept_share=None if window is None else window.kept_share,
        overflow_ops=scan.overflow_ops,
        overflow_ops_reason=scan.overflow_ops_reason,
        label=_scan_label(result),
    )


def _scan_label(result: Result) -> r.LabelName:
    for trial in result.trials:
        if trial.proposal.scan:
            return trial.measurement.numerics_label.value
    return Label.measured.value


def _runs_of(result: Result, setting: Setting, first: Measurement) -> tuple[Measurement, ...]:
    fresh = tuple(
        t.measurement
        for t in result.trials
        if t.proposal.phase is Phase.confirm
        and t.proposal.repeat > 0
        and t.proposal.setting.key() == setting.key()
        and t.measurement.ok
        and t.measurement.time_label is first.time_label
        and t.measurement.throughput_samples_per_s
    )
    return (first, *fresh)


def _stability_of(result: Result, setting: Setting) -> tuple[Measurement, ...]:
    return tuple(
        t.measurement
        for t in result.trials
        if t.proposal.phase in (Phase.drift, Phase.numerics)
        and t.measurement.ok
        and t.proposal.setting.key() == setting.key()
    )


def _labels_used(result: Result) -> set[str]:
    out: set[str] = set()
    for trial in result.trials:
        m = trial.measurement
        out |= {m.time_label.value, m.memory_label.value, m.numerics_label.value}
    return out


def _search(result: Result, wall_s: float) -> r.SearchRecord:
    options = result.options
    phases = Counter(str(t.proposal.phase) for t in result.trials)
    outcomes = Counter(str(t.measurement.outcome) for t in result.trials)
    return r.SearchRecord(
        trials=result.counted_trials,
        extra_runs=len(result.trials) - result.counted_trials,
        trials_by_phase=dict(phases),
        outcomes=dict(outcomes),
        wall_s=wall_s,
        seed=options.seed,
        headroom=options.headroom,
        min_gain=options.min_gain,
        max_drift=options.max_drift,
        confirm_pairs=options.confirm_pairs,
        stopped=result.stopped,
        batch_reason=result.space.batch_reason,
        ceilings=tuple(
            r.CeilingRecord(
                description=_recipe_text(c.recipe),
                largest_fitting=c.largest_fitting,
                fastest=c.fastest,
                smallest_failing=c.smallest_failing,
                predicted_largest=c.predicted_largest,
                why=c.why,
            )
            for c in result.ceilings
        ),
        skipped=tuple(r.SkippedRecord(what=x.what, reason=x.reason) for x in result.skipped),
    )


def _recipe_text(setting: Setting) -> str:
    plain = setting.dtype is Dtype.float32 and not setting.is_reduced
    return "FP32" if plain else setting.describe()
