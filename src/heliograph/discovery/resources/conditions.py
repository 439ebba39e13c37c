"""Conditions of resources: the ranges of an advertisement and the conditions of a request, as boxes.

In:    texts in the language predicates, or SQL that is a conjunction; values of a resource.
Out:   ResourceCondition: the canonical form, shared by equal conditions, with its box; whether values lie in it.
State: a bounded cache of texts that were read recently.
Not here: many conditions at once (matching/boxes/index.py), the languages (matching/languages/).
Paper: [resources] §4: conjunctions of [attribute, operator, value].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.discovery.resources.messages import NAME_LENGTH_MAX, TEXT_LENGTH_MAX, FoundResource
from heliograph.errors import ConditionError, Reason
from heliograph.matching.boxes.box import Box, box, encloses, fits
from heliograph.matching.languages import compile as compile_condition
from heliograph.matching.languages.lexer import over_limit
from heliograph.matching.languages.ranges import WORDS, write_name, write_value
from heliograph.model.predicates import Conjunction, Op, Value

TEXTS_MAX = 4_096
PREDICATES = "predicates"  # the language of canonical texts


@dataclass(frozen=True, slots=True)
class ResourceCondition:
    """A conjunction. Two with the same text are equal."""

    text: str
    conjunction: Conjunction = field(compare=False)
    box: Box = field(compare=False)

    def has(self, values: Mapping[str, object]) -> bool:
        """True if a resource with these values matches."""
        return fits(self.box, values)

    def covers(self, other: ResourceCondition) -> bool:
        """True if everything that matches the other matches this one."""
        return encloses(self.box, other.box)

    def overlaps(self, advertised: ResourceCondition) -> bool:
        """True if a resource advertised this way can match: it has every attribute that this condition names."""
        offered = advertised.box
        return all(name in offered and values.meets(offered[name]) for name, values in self.box.items())


_read: dict[tuple[str, str], ResourceCondition] = {}


def read_condition(text: str, language: str = PREDICATES) -> ResourceCondition:
    """A text as a condition. ConditionError if it is invalid, more than a conjunction, or too long for messages."""
    known = _read.get((text, language))
    if known is None:
        known = _compile(text, language)
        remember(known)  # neighbours get the canonical text
        _read[(text, language)] = known
    return known


def remember(condition: ResourceCondition) -> None:
    """Its text will be read soon: do not compile it again."""
    _read.pop((condition.text, PREDICATES), None)
    while len(_read) >= TEXTS_MAX:
        del _read[next(iter(_read))]
    _read[(condition.text, PREDICATES)] = condition


def _compile(text: str, language: str) -> ResourceCondition:
    compiled = compile_condition(language, text)
    if compiled.residue is not None or compiled.synopsis is not None:
        raise ConditionError(
            "resources are asked by a conjunction of comparisons, such as memory > 1 and system = 'linux'",
            text,
            reason=Reason.RESOURCE_CONDITION_UNFIT,
        )
    if len(compiled.text) > TEXT_LENGTH_MAX:  # 1e17 has four characters, and eighteen in the canonical form
        over_limit(
            f"a condition of resources has at most {TEXT_LENGTH_MAX} characters in its canonical form, which writes "
            f"numbers out; this one has {len(compiled.text)}"
        )
    found = box(compiled.box)
    if found is not None and any(len(name) > NAME_LENGTH_MAX for name in found):
        over_limit(f"the name of an attribute of resources has at most {NAME_LENGTH_MAX} characters", text)
    if found is None:
        raise ConditionError("nothing can fit this condition", text, reason=Reason.RESOURCE_CONDITION_UNFIT)
    return ResourceCondition(compiled.text, compiled.box, found)


def fixed_condition(values: Mapping[str, Value]) -> str:
    """The text that requires exactly these values."""
    return " and ".join(f"{write_name(name, WORDS)} = {write_value(value)}" for name, value in sorted(values.items()))


def fixed_values(condition: ResourceCondition) -> dict[str, Value]:
    """The values that a condition fixes."""
    return {each.attribute: each.value for each in condition.conjunction if each.op is Op.EQUAL}


def fits_found(condition: ResourceCondition, found: FoundResource) -> bool:
    """True if a resource found for another request matches this condition; one without values, if it may match."""
    if found.values is not None:
        return condition.has(found.values)
    try:
        return condition.overlaps(read_condition(found.where))
    except ConditionError:
        return False
