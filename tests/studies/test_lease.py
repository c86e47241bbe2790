"""One tuner a study; kill -9 frees it at once and loses at most the running trial."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from autoamp.errors import EXIT_STORAGE, StorageError
from autoamp.measurement import Outcome
from autoamp.studies import lease as leases
from autoamp.studies.lease import acquire, is_alive, process_started
from autoamp.studies.reading import open_reader
from autoamp.studies.records import LeaseRow, NewStudy, Study, TrialState
from autoamp.studies.store import Store, open_store

Make = Callable[..., NewStudy]

IMPORTS = """
import sys, time
from autoamp.measurement import Measurement, Outcome, Phase
from autoamp.settings import AS_WRITTEN
from autoamp.studies.lease import acquire
from autoamp.studies.store import open_store
"""


def python(body: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", IMPORTS + textwrap.dedent(body), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    text = process.stdout.readline().strip()
    assert text, process.communicate()[1]
    return text


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


@pytest.fixture
def study(storage_url: str, new_study: Make) -> Study:
    with open_store(storage_url) as store:
        return store.create_study(new_study())


def held(store: Store, study: Study) -> LeaseRow:
    row = store.lease(study.id)
    assert row is not None
    return row


def pretend(store: Store, study: Study, **values: object) -> LeaseRow:
    """Put somebody else's row in the place of ours, which must be held."""
    row = held(store, study)
    other = replace(row, token="other", **values)  # type: ignore[arg-type]  # fields by name
    assert store.take_lease(other, instead_of=row)
    return other


HOLD = """
with open_store(sys.argv[1]) as store:
    with acquire(store, int(sys.argv[2])):
        store.start_trial(int(sys.argv[2]), Phase.search, AS_WRITTEN, "real")
        print("held", flush=True)
        time.sleep(60)
"""


def test_a_second_tuner_is_told_who_has_it(storage_url: str, study: Study) -> None:
    process = python(HOLD, storage_url, str(study.id))
    try:
        assert line(process) == "held"
        with open_store(storage_url) as store:
            with pytest.raises(StorageError) as e:
                acquire(store, study.id)
            assert [t.state for t in store.trials(study.id)] == [TrialState.running]
            assert store.studies()[0].state == "running"
    finally:
        end(process)
    assert e.value.slug == "study-in-use"
    assert e.value.exit_code == EXIT_STORAGE
    assert str(process.pid) in e.value.message
    assert os.uname().nodename in e.value.message
    assert study.name in e.value.message


def test_a_killed_tuner_frees_its_study_at_once(storage_url: str, study: Study) -> None:
    process = python(HOLD, storage_url, str(study.id))
    assert line(process) == "held"
    process.send_signal(signal.SIGKILL)
    # Not reaped yet: a zombie keeps its number, and is dead all the same.
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with open_store(storage_url) as store:
        assert store.studies()[0].state == "stopped (killed)"
        with acquire(store, study.id):
            (trial,) = store.trials(study.id)
            assert store.studies()[0].state == "running"
    process.communicate()
    assert trial.state is TrialState.lost
    assert trial.measurement is not None
    assert trial.measurement.outcome is Outcome.interrupted


def test_a_released_lease_is_gone(storage_url: str, study: Study) -> None:
    with open_store(storage_url) as store:
        lease = acquire(store, study.id)
        assert held(store, study).pid == os.getpid()
        lease.release()
        lease.release()
        assert store.lease(study.id) is None
        with acquire(store, study.id):
            pass


def test_another_study_is_free(storage_url: str, study: Study, new_study: Make) -> None:
    with open_store(storage_url) as store:
        other = store.create_study(new_study("other"))
        with acquire(store, study.id), acquire(store, other.id):
            assert held(store, study).token != held(store, other).token


def test_a_reused_pid_is_not_the_holder(storage_url: str, study: Study) -> None:
    with open_store(storage_url) as store, acquire(store, study.id):
        other = pretend(store, study, process_started="1")
        assert not is_alive(other)
        assert is_alive(replace(other, process_started=process_started(os.getpid()) or ""))


class TestOtherHost:
    def test_alive_while_it_beats(self, storage_url: str, study: Study) -> None:
        with open_store(storage_url) as store, acquire(store, study.id):
            other = pretend(store, study, host="far", host_id="far", pid=1)
            assert is_alive(other)
            assert not is_alive(other, now_s=other.heartbeat_at_s + 61.0)
            with pytest.raises(StorageError, match="process 1 on far"):
                acquire(store, study.id)

    def test_taken_over_once_silent(self, storage_url: str, study: Study) -> None:
        with open_store(storage_url) as store, acquire(store, study.id, beat_s=600.0):
            old = time.time() - 61.0
            pretend(store, study, host="far", host_id="far", pid=1, heartbeat_at_s=old)
            lease = acquire(store, study.id, beat_s=0.02)
            assert held(store, study).pid == os.getpid()
            lease.release()

    def test_a_slow_clock_is_no_death(self, storage_url: str, study: Study) -> None:
        """It beats, with the time of yesterday."""
        with open_store(storage_url) as store, acquire(store, study.id, beat_s=600.0):
            day = time.time() - 86400.0
            pretend(store, study, host="far", host_id="far", pid=1, heartbeat_at_s=day)
            stop = threading.Event()

            def beat() -> None:
                while not stop.wait(0.02):
                    store.beat(study.id, "other", day)

            thread = threading.Thread(target=beat)
            thread.start()
            try:
                with pytest.raises(StorageError) as e:
                    acquire(store, study.id, beat_s=0.2)
            finally:
                stop.set()
                thread.join()
            assert e.value.slug == "study-in-use"


def test_the_holder_beats_and_notices_its_loss(storage_url: str, study: Study) -> None:
    with open_store(storage_url) as store, acquire(store, study.id, beat_s=0.02) as lease:
        first = held(store, study)
        wait_for(lambda: held(store, study).beats > first.beats + 1)
        assert held(store, study).heartbeat_at_s > first.heartbeat_at_s
        lease.check()
        while True:
            try:
                pretend(store, study, host="far", pid=4711)
            except AssertionError:
                # A beat came between reading and writing.
                continue
            break
        wait_for(lambda: raises(lease.check))
        with pytest.raises(StorageError, match="4711 on far") as e:
            lease.check()
        assert e.value.slug == "study-in-use"
    with open_store(storage_url) as store:
        assert held(store, study).pid == 4711, "another's lease is not dropped with ours"


def test_a_beat_that_fails_is_tried_again(
    tmp_path: object, new_study: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(f"sqlite:///{tmp_path}/autoamp.db") as store:
        study = store.create_study(new_study())
        beat, calls = store.beat, []

        def fail_first(*arguments: object) -> bool:
            calls.append(arguments)
            if len(calls) < 3:
                raise StorageError("locked", slug="storage-locked")
            return beat(*arguments)  # type: ignore[arg-type]  # as given

        monkeypatch.setattr(store, "beat", fail_first)
        with acquire(store, study.id, beat_s=0.01) as lease:
            wait_for(lambda: held(store, study).beats > 0)
            lease.check()


def test_start_time_is_that_of_a_process() -> None:
    assert process_started(os.getpid()) == process_started(os.getpid())
    assert process_started(2**22 + 1) is None
    assert leases.host_id() == leases.host_id()


RACE = """
with open_store(sys.argv[1]) as store:
    print("ready", flush=True)
    time.sleep(max(0.0, float(sys.argv[3]) - time.time()))
    try:
        lease = acquire(store, int(sys.argv[2]))
    except Exception as e:
        print(getattr(e, "slug", repr(e)), flush=True)
    else:
        print("won", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_of_several_at_once_one_wins(storage_url: str, study: Study) -> None:
    go = str(time.time() + 4.0)
    processes = [python(RACE, storage_url, str(study.id), go) for _ in range(4)]
    try:
        assert [line(p) for p in processes] == ["ready"] * 4
        said = sorted(line(p) for p in processes)
    finally:
        for process in processes:
            end(process)
    assert said == ["study-in-use"] * 3 + ["won"]


CREATE = """
time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
with open_store(sys.argv[1]) as store:
    print(len(store.studies()), flush=True)
"""


@pytest.mark.slow
def test_several_may_create_the_database_at_once(storage_url: str) -> None:
    go = str(time.time() + 4.0)
    processes = [python(CREATE, storage_url, go) for _ in range(4)]
    assert [line(p) for p in processes] == ["0"] * 4
    for process in processes:
        assert process.communicate() == ("", "")


WRITER = """
with open_store(sys.argv[1]) as store:
    study = int(sys.argv[2])
    with acquire(store, study, beat_s=0.005):
        while True:
            trial = store.start_trial(study, Phase.search, AS_WRITTEN, "real")
            value = Measurement(outcome=Outcome.ok, throughput_samples_per_s=trial.number + 0.5)
            store.finish_trial(trial.id, value)
            print(trial.number, flush=True)
"""


@pytest.mark.slow
def test_kill_at_any_moment_loses_at_most_the_running_trial(
    storage_url: str, study: Study
) -> None:
    """Each round continues the study of the killed one; what it had reported is all there."""
    reported: set[int] = set()
    for round_number in range(8):
        process = python(WRITER, storage_url, str(study.id))
        reported.add(int(line(process)))
        # A different moment of the write each time; what is asserted holds at any.
        time.sleep(0.037 * round_number)
        process.kill()
        out, _ = process.communicate()
        # The last line may have been cut off by the kill.
        reported.update(int(text) for text in out.splitlines(keepends=True) if text[-1:] == "\n")
        with open_store(storage_url) as store:
            with acquire(store, study.id):
                trials = store.trials(study.id)
            with open_reader(storage_url) as reader:
                assert reader.trials(study.id) == trials
        finished = {t.number: t for t in trials if t.state is TrialState.finished}
        lost = [t for t in trials if t.state is TrialState.lost]
        assert [t.number for t in trials] == list(range(len(trials)))
        assert reported <= finished.keys(), "a trial that was reported is gone"
        assert len(lost) <= round_number + 1, "more than the running trial of each round is lost"
        assert len(finished) + len(lost) == len(trials)
        for number, trial in finished.items():
            assert trial.measurement is not None
            assert trial.measurement.throughput_samples_per_s == number + 0.5
    if storage_url.startswith("sqlite"):
        with open_store(storage_url) as store:
            assert store.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def wait_for(true: Callable[[], bool]) -> None:
    """Until it is so; the suite's own time-out ends a test that never gets there."""
    while not true():
        time.sleep(0.01)


def raises(call: Callable[[], None]) -> bool:
    try:
        call()
    except StorageError:
        return True
    return False
