"""Data loaders: which one feeds training, its batch size, its waiting time, its end."""

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autoamp.child import loader_queue
from autoamp.child.call_site import call_site, same_site
from autoamp.child.patching import bind, wrap_method

if TYPE_CHECKING:
    from autoamp.child.session import Session

SITE_FRAMES = 3
"""Frames that tell two loaders built by one helper function apart."""


class LoaderHooks:
    """Batch samplers are counted by place of creation; DataLoaders deliver what they sample."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._made_at: dict[tuple[str, str], int] = {}
        self._building = 0
        self.fed: dict[int, dict[str, Any]] = {}
        """Loaders that fed an optimizer step, by id of their DataLoader."""
        self._last: dict[str, Any] | None = None
        self._inside_next = False
        self.wait_s = 0.0
        self._waiting: dict[int, int] = {}
        """Samples delivered since the last step, by loader."""
        # Weak: an iterator that ends must take its workers with it.
        self._iterators: dict[int, weakref.ref[Any]] = {}
        self._batches: dict[int, int] = {}
        self._batches_at_start: dict[int, int] = {}
        self._steps_since_start = 0
        self.restarts = 0
        self.restarting = True
        self._fills = True

    def install(self) -> None:
        paddle = self._session.paddle
        sampler = paddle.io.dataloader.batch_sampler
        for name in ("BatchSampler", "DistributedBatchSampler", "_InfiniteIterableSampler"):
            cls = getattr(sampler, name, None)
            if cls is not None and "__init__" in cls.__dict__:
                wrap_method(cls, "__init__", self._around_sampler_init)
        wrap_method(paddle.io.DataLoader, "__init__", self._around_loader_init)
        wrap_method(paddle.io.DataLoader, "__iter__", self._around_iter)
        iterators = paddle.io.dataloader.dataloader_iter
        for name in ("_DataLoaderIterSingleProcess", "_DataLoaderIterMultiProcess"):
            cls = getattr(iterators, name, None)
            if cls is not None:
                wrap_method(cls, "__next__", self._around_next)

    def _chosen(self, kind: str, site: str, ordinal: int) -> bool:
        return any(
            p.kind == kind and p.ordinal == ordinal and same_site(p.site, site)
            for p in self._session.plan.loaders
        )

    def _around_sampler_init(self, original: Callable[..., None]) -> Callable[..., None]:
        def __init__(sampler: Any, *args: Any, **kwargs: Any) -> None:
            if self._building:
                original(sampler, *args, **kwargs)
                return
            session = self._session
            kind = type(sampler).__name__
            site = call_site(session.paddle_dir, SITE_FRAMES)
            ordinal = self._made_at.get((kind, site), 0)
            self._made_at[(kind, site)] = ordinal + 1
            bound = bind(original, (sampler, *args), kwargs)
            own = None if bound is None else bound.arguments.get("batch_size")
            self._building += 1
            try:
                if (
                    bound is not None
                    and session.patches("batch_size")
                    and self._chosen(kind, site, ordinal)
                ):
                    bound.arguments["batch_size"] = session.setting.batch_size
                    session.applied("batch_size", session.setting.batch_size, own)
                    original(*bound.args, **bound.kwargs)
                else:
                    original(sampler, *args, **kwargs)
            finally:
                self._building -= 1
            sampler._autoamp = {
                "ordinal": ordinal,
                "kind": kind,
                "site": site,
                "batch_size": own,
            }

        return __init__

    def _around_loader_init(self, original: Callable[..., None]) -> Callable[..., None]:
        def __init__(loader: Any, *args: Any, **kwargs: Any) -> None:
            original(loader, *args, **kwargs)
            sampler = getattr(loader, "batch_sampler", None)
            size = getattr(sampler, "batch_size", None)
            if getattr(loader, "batch_size", None) is not None and size is not None:
                loader.batch_size = size
            about = getattr(sampler, "_autoamp", None)
            if about is None:
                about = {
                    "ordinal": 0,
                    "kind": type(sampler).__name__ if sampler is not None else "DataLoader",
                    "site": call_site(self._session.paddle_dir, SITE_FRAMES),
                    "batch_size": size,
                    "tunable": False,
                    "reason": (
                        f"batches come from {type(sampler).__name__}, the script's own sampler"
                        if sampler is not None
                        else "the loader has no batch size (batch_size=None)"
                    ),
                }
            try:
                length: int | None = len(loader.dataset)
            except Exception:
                length = None
            loader._autoamp = {"tunable": True, "reason": None, **about, "dataset_length": length}

        return __init__

    def _around_iter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __iter__(loader: Any) -> Any:
            iterator = original(loader)
            iterator._autoamp_loader = loader
            iterator._autoamp_next = None
            return iterator

        return __iter__

    def _around_next(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def __next__(iterator: Any) -> Any:
            if self._inside_next:
                return original(iterator)
            self._inside_next = True
            start = time.perf_counter()
            try:
                batch = self._next_or_restart(iterator, original)
            finally:
                self._inside_next = False
            self.wait_s += time.perf_counter() - start
            if self._fills and self._session.meter.wants_full_queue():
                self._fill(iterator)
            loader = getattr(iterator, "_autoamp_loader", None)
            if loader is not None:
                self._iterators[id(loader)] = weakref.ref(iterator)
                self._batches[id(loader)] = self._batches.get(id(loader), 0) + 1
                self._last = {
                    "id": id(loader),
                    "about": loader._autoamp,
                    "delivered": leading_dimension(batch, self._session.paddle),
                }
                waiting = self._waiting.get(id(loader), 0)
                self._waiting[id(loader)] = waiting + (self._last["delivered"] or 0)
            return batch

        return __next__

    def _fill(self, iterator: Any) -> None:
        virtual = self._session.device.virtual
        current = getattr(iterator, "_autoamp_next", None) or iterator
        try:
            self._fills = loader_queue.fill(current, virtual.live_bytes)
        except Exception as error:
            self._fills = False
            self._session.events.fault("loader queue", error)

    def _next_or_restart(self, iterator: Any, original: Callable[..., Any]) -> Any:
        """The next batch; a dataset that ends before the wanted steps starts over."""
        current = getattr(iterator, "_autoamp_next", None) or iterator
        try:
            return original(current)
        except StopIteration:
            loader = getattr(iterator, "_autoamp_loader", None)
            if (
                loader is None
                or not self.restarting
                or not self._session.plan.restart_dataset
                or not self._session.is_trial
                or id(loader) not in self.fed
            ):
                raise
            fresh = iter(loader)
            if fresh is iterator:
                # Persistent workers: the iterator was reset in place.
                batch = original(fresh)
            else:
                iterator._autoamp_next = fresh
                batch = original(fresh)
            self.restarts += 1
            return batch

    def stepped(self) -> int | None:
        """An optimizer step was made: the loader that delivered last feeds training.

        Returns the samples that training loaders delivered for it; None without a loader.
        """
        self._steps_since_start += 1
        last, self._last = self._last, None
        waiting, self._waiting = self._waiting, {}
        if last is None:
            return None
        record = self.fed.get(last["id"])
        delivered: int | None = last["delivered"]
        if record is None:
            self.fed[last["id"]] = {**last["about"], "delivered_max": delivered or 0}
        elif delivered is not None and delivered > record["delivered_max"]:
            record["delivered_max"] = delivered
        # What an evaluation loader delivered in between is no training sample.
        return sum(n for loader, n in waiting.items() if loader in self.fed)

    def start_counting(self) -> None:
        """From now on batches are counted for ``feeding``."""
        self._batches_at_start = dict(self._batches)
        self._steps_since_start = 0

    def feeding(self) -> list[tuple[Any, float]]:
        """The iterators behind the steps since ``start_counting``, with batches a step."""
        steps = max(1, self._steps_since_start)
        found = []
        for key, reference in self._iterators.items():
            iterator = reference()
            batches = self._batches[key] - self._batches_at_start.get(key, 0)
            if iterator is not None and key in self.fed and batches:
                found.append((iterator, batches / steps))
        return found

    def facts(self) -> list[dict[str, Any]]:
        """Training loaders, with a reason where the batch size cannot be changed."""
        out = []
        records = list(self.fed.values())
        if not records and self._last is not None:
            # A script that fails in its first step: what delivered last was about to feed it.
            delivered = self._last["delivered"] or 0
            records = [{**self._last["about"], "delivered_max": delivered}]
        for record in records:
            about = dict(record)
            delivered = about.pop("delivered_max")
            wanted = about["batch_size"]
            if about["tunable"] and wanted is not None and delivered not in (0, wanted):
                replaced = self._session.patches("batch_size")
                length = about["dataset_length"]
                short = length is not None and length < wanted
                if not replaced and not short:
                    about["tunable"] = False
                    about["reason"] = (
                        f"the loader's batch_size is {wanted} but its batches hold {delivered} "
                        "samples: they are made before the sampler"
                    )
            about["delivered"] = delivered
            out.append(about)
        return out


def leading_dimension(batch: Any, paddle: Any) -> int | None:
    """Samples in a batch: the first dimension of the first tensor or array found in it."""
    todo = [batch]
    while todo:
        value = todo.pop(0)
        shape = getattr(value, "shape", None)
        if shape is not None and not isinstance(value, type):
            if len(shape) >= 1:
                return int(shape[0])
        elif isinstance(value, dict):
            todo = list(value.values()) + todo
        elif isinstance(value, (list, tuple)):
            todo = list(value) + todo
    return None
