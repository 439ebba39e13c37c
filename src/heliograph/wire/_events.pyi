from collections.abc import Callable

HEAD: int
EVENT: int

def read_events(
    pieces: list[bytes], wanted: int, times_of: Callable[[bytes], tuple[int | None, bool]], /
) -> tuple[int, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]: ...
def select(
    data: bytes, skip: int, count_max: int, bytes_max: int, known: dict[bytes, bool], wants: Callable[[bytes], bool], /
) -> tuple[int, int, list[tuple[int, int, int, int]]]: ...
