"""Runs code that is written straight down one step at a time, so that a test can stop, kill or interleave it anywhere.

    class Commit(Stepped[CommittedBatch]):
        def work(self) -> CommittedBatch: ...      # calls self.pause() before each call that a crash may come before

    commit.step()      # up to the next pause
    commit.kill()      # it stops there, as a process that dies
    commit.run()       # to its end

The code runs in a thread of its own, but never beside the test: one of both always waits for the other. So each run of
a test takes the same steps in the same order.
"""

from abc import ABC, abstractmethod
from threading import Semaphore, Thread
from typing import Generic, Self, TypeVar

from oncelog.core.errors import InvariantViolated, OncelogError

T = TypeVar("T")


class Killed(BaseException):
    """The process dies here; nothing may catch it."""


class Stepped(ABC, Generic[T]):
    """One run of `work`."""

    def __init__(self) -> None:
        #: the result, or the error that ended the run; None: it has not ended, or was killed
        self.outcome: T | OncelogError | None = None
        self._over = False
        self._killed = False
        #: a bug of the code or of the test: raised by the step that meets it
        self._bug: BaseException | None = None
        self._go, self._stands = Semaphore(0), Semaphore(0)
        self._thread: Thread | None = None

    @abstractmethod
    def work(self) -> T:
        """The code itself. Raises OncelogError."""

    def step(self) -> bool:
        """Go on to the next pause, or to the end. False: it is over."""
        if self._over:
            return False
        if self._thread is None:
            self._thread = Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._go.release()
        self._stands.acquire()
        if self._bug is not None:
            raise self._bug
        return not self._over

    def run(self) -> T | OncelogError:
        """Go on to the end. Returns the result, or the error that ended it."""
        while self.step():
            pass
        assert self.outcome is not None, "it was killed"
        return self.outcome

    def kill(self) -> None:
        """It stops where it stands: nothing that it calls from now on has an effect."""
        self._killed = True
        self._over = self._over or self._thread is None
        while self.step():
            pass

    def killed_after(self, steps: int) -> Self:
        """Take so many steps, and die."""
        for _ in range(steps):
            self.step()
        self.kill()
        return self

    def pause(self) -> None:
        """Called by `work`: wait for the next step. Raises Killed."""
        if not self._killed:
            self._stands.release()
            self._go.acquire()
        if self._killed:
            raise Killed

    def _run(self) -> None:
        try:
            self.outcome = self.work()
        except Killed:
            pass
        except InvariantViolated as error:
            self._bug = error
        except OncelogError as error:
            self.outcome = error
        except BaseException as error:  # noqa: BLE001  # handed over to the test
            self._bug = error
        finally:
            self._over = True
            self._stands.release()
