"""Tables of conditions on content: their bounds count what is there, not what was there."""

from __future__ import annotations

import pytest

from heliograph.matching.contents import RESIDUES_MAX, ContentTable
from heliograph.matching.languages import compile


@pytest.mark.req("N9", "O6")
def test_conditions_that_were_removed_leave_their_room_to_others() -> None:
    table: ContentTable[int] = ContentTable()
    table.add(b"t", compile("sql", "b LIKE '%x'"), 0)
    passing = compile("sql", "a + 1 > 5 AND b LIKE '%y'")
    for number in range(RESIDUES_MAX // passing.weight + 1):
        table.add(b"t", passing, number)
        table.remove(b"t", passing, number)
    (field,) = table.fields(b"t")
    assert field.residues == compile("sql", "b LIKE '%x'").weight
