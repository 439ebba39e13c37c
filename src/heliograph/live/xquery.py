"""XQuery beside a node: a process that runs untrusted queries, and is killed when their time is over.

In:    SiftDocuments jobs of machines.
Out:   ``done`` with Sifted, or ``failed`` with a reason, on the loop's own thread.
State: a bounded queue, one thread, one process; both start when the first job comes.
Not here: the program in the process (xquery_worker.py), which documents are tested (discovery/topics/).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from struct import Struct
from threading import Thread, Timer
from typing import IO, Any

import msgspec

from heliograph.errors import ProtocolError, Reason
from heliograph.live.inputs import MachineInputs
from heliograph.machine import Ticket
from heliograph.repository import SiftDocuments, Sifted

WAITING_MAX = 64
START_S = 30.0  # Saxon takes about 0.2 s to start
_LENGTH = Struct("<I")
_WORKER = Path(__file__).with_name("xquery_worker.py")
_answers = msgspec.msgpack.Decoder(dict[str, Any])


class QueryProcess:
    """The process. It is used by one thread; every call may take up to its limit."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._is_late = False

    def sift(self, job: SiftDocuments) -> Sifted:
        """The documents for which the query is true; ProtocolError if it took too long, or XQuery is not installed."""
        if find_spec("saxonche") is None:
            raise ProtocolError(Reason.QUERY_LANGUAGE_MISSING, "XQuery needs: pip install 'heliograph[xquery]'")
        if self._process is None or self._process.poll() is not None:
            self._start()
        documents = [document.decode("utf-8", "replace") for document in job.documents]
        request = msgspec.msgpack.encode({"query": job.query, "documents": documents})
        said = self._exchange(_LENGTH.pack(len(request)) + request, job.limit_ms / 1_000)
        if "invalid" in said:
            return Sifted(problem=str(said["invalid"]))
        return Sifted(tuple(number for number in said["numbers"] if 0 <= number < len(documents)))

    def _start(self) -> None:
        self.close()
        self._folder = tempfile.TemporaryDirectory(prefix="heliograph-query-")
        self._process = subprocess.Popen(  # noqa: S603 our own program with our own arguments
            [sys.executable, "-I", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self._folder.name,
            env={},
            start_new_session=True,  # signals of the node's terminal must not reach it
        )
        self._exchange(b"", START_S)

    def _exchange(self, request: bytes, limit_s: float) -> dict[str, Any]:
        """Send a request and wait for its answer; when the time is over, the process is killed."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        self._is_late = False
        timer = Timer(limit_s, self.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            answer = _answers.decode(_read(process.stdout, _LENGTH.unpack(_read(process.stdout, _LENGTH.size))[0]))
        except (OSError, EOFError, msgspec.MsgspecError):
            self.close()
            if self._is_late:
                raise ProtocolError(Reason.QUERY_OVER_TIME, f"it took more than {limit_s:g} s") from None
            raise ProtocolError(Reason.QUERY_OVER_TIME, "it took more memory than a query may use") from None
        finally:
            timer.cancel()
        return answer

    def kill(self) -> None:
        """Kill the process; called from another thread."""
        self._is_late = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Kill the process, and remove its folder."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                try:
                    pipe.close()
                except OSError:
                    pass  # unwritten data is not needed
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()


def _read(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


class QueryWorker:
    """The thread with its queue: one query after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: SimpleQueue[tuple[MachineInputs, Ticket, SiftDocuments] | None] = SimpleQueue()
        self._process = QueryProcess()
        self._thread: Thread | None = None
        self._waiting = 0
        self._ended = False

    def start(self, runner: MachineInputs, ticket: Ticket, job: SiftDocuments) -> None:
        """Run a job in its turn."""
        if self._waiting >= WAITING_MAX or self._ended:
            runner.fail_soon(ticket, Reason.REQUESTS_OVER_LIMIT)
            return
        self._waiting += 1
        self._queue.put((runner, ticket, job))
        if self._thread is None:
            self._thread = Thread(target=self._work, name="heliograph-query", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Accept no more jobs; a running one is killed, so that nothing outlives the node."""
        self._ended = True
        self._queue.put(None)
        self._process.kill()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None and not self._ended:
            runner, ticket, job = work
            try:
                answer: tuple[Callable[..., None], Ticket, Any] = (runner.done, ticket, self._process.sift(job))
            except ProtocolError as error:
                answer = (runner.failed, ticket, error.reason)
            except OSError:  # no process, or no folder for it
                answer = (runner.failed, ticket, Reason.JOB_FAILED)
            try:
                self._loop.call_soon_threadsafe(self._answer, *answer)
            except RuntimeError:
                break  # the loop was closed meanwhile
        self._process.close()

    def _answer(self, call: Callable[..., None], ticket: Ticket, result: Any) -> None:
        self._waiting -= 1
        if not self._ended:
            call(ticket, result)
