"""Views of old versions, made when they are needed: the last ones that were used are kept, because each takes long to
make."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from logdb.system.forking import keep_for_ever

MIN_VIEWS: Final = 4
"""Number of views that are kept whatever their size."""
MAX_VIEWS: Final = 64
"""Maximum number of views that are not in use: each has open files."""


class KeptView(Protocol):
    """A view with files. `users`: the number of reads under way. `size_bytes`: of its files."""

    users: int

    @property
    def size_bytes(self) -> int: ...

    def close(self) -> None:
        """Remove its files."""


V = TypeVar("V", bound=KeptView)


class KeptViews(Generic[V]):
    """Views by name, up to `max_bytes` of those that are not in use. Any thread may use it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._views: OrderedDict[Hashable, V] = OrderedDict()
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._closed = False

    @contextlib.contextmanager
    def use(self, name: Hashable, make: Callable[[], V]) -> Iterator[V]:
        """The view of this name, for the block; `make` makes it if it is not kept."""
        view = self._kept(name, make)
        try:
            yield view
        finally:
            with self._lock:
                view.users -= 1
                self._drop_old()

    def _kept(self, name: Hashable, make: Callable[[], V]) -> V:
        with self._making:
            with self._lock:
                view = self._views.get(name)
                if view is not None:
                    self._views.move_to_end(name)
                    view.users += 1
                    return view
            view = make()
            with self._lock:
                view.users = 1
                self._views[name] = view
                self._drop_old()
            return view

    def drop(self, name: Hashable) -> None:
        """Make the view anew when it is used next. Called by its only user."""
        with self._lock:
            self._views.pop(name).close()

    def _drop_old(self) -> None:
        for name in [name for name, view in self._views.items() if not view.users]:
            if self._closed or self._are_too_many():
                self._views.pop(name).close()

    def _are_too_many(self) -> bool:
        number, size = len(self._views), sum(view.size_bytes for view in self._views.values())
        return number > MAX_VIEWS or (number > MIN_VIEWS and size > self._max_bytes)

    def disown(self) -> None:
        """In a child of fork(): replace the locks, and leave the views to the parent."""
        keep_for_ever(self._views)
        self._views = OrderedDict()
        self._lock, self._making = threading.Lock(), threading.Lock()

    def close(self) -> None:
        """Remove the views, those in use when their reads end."""
        with self._lock:
            self._closed = True
            self._drop_old()
