"""Messages from one process to another through shared memory; the sender never waits.

A ring of bytes holds the messages. A pipe tells the receiver where the next one lies, another tells the
sender how far it has been read. Neither side shares a lock, so that the death of one leaves the other as it
was.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PLACE = struct.Struct("<QQ")
_READ_TO = struct.Struct("<Q")
_PIPE_BYTES = 1 << 18
_SENDERS: weakref.WeakSet[RingSender] = weakref.WeakSet()


class RingSender:
    """The end that writes.

    Args:
        size: Bytes that can wait; at most 16384 messages wait, too.

    Attributes:
        child_handles: Memory, places and positions: the handles that the receiving process needs.

    Raises:
        OSError: There is not so much memory.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        with ExitStack() as undo:
            memory = os.memfd_create("recording")
            undo.callback(os.close, memory)
            os.posix_fallocate(memory, 0, size)  # now, and not by a page fault in a control loop
            self._memory = mmap.mmap(memory, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
            undo.callback(self._memory.close)
            places_out, self._places = _pipe(undo)
            self._positions, positions_in = _pipe(undo)
            for pipe in (self._places, self._positions):
                os.set_blocking(pipe, False)
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            self.child_handles = (memory, places_out, positions_in)
            undo.pop_all()
        self._sent = self._read_to = 0
        self._gone = False
        self._sending = self._open = True
        _SENDERS.add(self)

    @property
    def waiting(self) -> int:
        """Bytes that the receiver has not read yet."""
        self._look()
        return self._sent - self._read_to

    def send(self, parts: Sequence[bytes | memoryview], *, spare: int = 0) -> bool:
        """Put one message of several parts into the ring.

        Args:
            parts: What it consists of.
            spare: Bytes that must stay free after it, for messages that matter more.

        Returns:
            Whether there was room for it; nothing of it is kept otherwise.

        Raises:
            BrokenPipeError: The receiver is gone, or this is a fork of the sender.
            ValueError: It is larger than the ring.
        """
        if not self._sending:
            raise BrokenPipeError("This end of the ring is closed.")
        length = sum(len(part) for part in parts)
        if length > self.size:
            raise ValueError(f"A message of {length} bytes can never fit a queue of {self.size} bytes.")
        self._look()  # each time: should its pipe fill up, the receiver would wait, and never read again
        start = self._sent % self.size
        begin = self._sent if start + length <= self.size else self._sent + self.size - start
        used_from = begin if self._read_to == self._sent else self._read_to
        if begin + length + spare - used_from > self.size:
            if self._gone:
                raise BrokenPipeError("The receiver is gone, and what waits for it fills the ring.")
            return False
        place = begin % self.size
        for part in parts:
            self._memory[place : place + len(part)] = part
            place += len(part)
        try:
            os.write(self._places, _PLACE.pack(begin, length))
        except BlockingIOError:
            return False
        self._sent = begin + length
        return True

    def hand_over(self) -> None:
        """Close the receiver's handles here, once it has them."""
        for handle in self.child_handles:
            os.close(handle)

    def end(self) -> None:
        """Tell the receiver that nothing follows; `waiting` goes on to say what it has not read yet."""
        if self._sending:
            self._sending = False
            os.close(self._places)

    def close(self) -> None:
        """End, and give the memory back; does nothing the second time."""
        self.end()
        if self._open:
            self._open = False
            os.close(self._positions)
            self._memory.close()

    def _look(self) -> None:
        if not self._open:
            return
        try:
            content = os.read(self._positions, _PIPE_BYTES)
        except BlockingIOError:
            return
        self._gone = not content
        if content:
            (self._read_to,) = _READ_TO.unpack(content[-_READ_TO.size :])


def _pipe(undo: ExitStack) -> tuple[int, int]:
    handles = os.pipe()
    for handle in handles:
        undo.callback(os.close, handle)
    return handles


def _close_all() -> None:
    for sender in _SENDERS:
        sender.close()


os.register_at_fork(after_in_child=_close_all)  # else a receiver would wait for forks of a sender that died


class RingReceiver:
    """The end that reads.

    Args:
        memory: Handle of the shared memory; so the next two.
        places: Where to read the places of messages.
        positions: Where to say how far they were read.
        size: Bytes of the ring.
    """

    def __init__(self, memory: int, places: int, positions: int, size: int) -> None:
        self._memory = memoryview(mmap.mmap(memory, size))
        self._places = os.fdopen(places, "rb")
        self._positions = positions
        self._size = size

    def __iter__(self) -> Iterator[memoryview]:
        """Messages until the sender closed or died; each is valid until the next is asked for."""
        while len(place := self._places.read(_PLACE.size)) == _PLACE.size:
            begin, length = _PLACE.unpack(place)
            start = begin % self._size
            yield self._memory[start : start + length]
            try:
                os.write(self._positions, _READ_TO.pack(begin + length))
            except BrokenPipeError:
                continue  # the sender is gone; what it sent is still read

    def close(self) -> None:
        """Close the handles."""
        self._places.close()
        os.close(self._positions)
