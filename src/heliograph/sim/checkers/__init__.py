"""Checkers: one file each. A scenario names the ones it uses."""

from heliograph.sim.checkers.base import Checker, Violation
from heliograph.sim.checkers.bounded import Bounded
from heliograph.sim.checkers.convergence import Convergence
from heliograph.sim.checkers.covered import Covered
from heliograph.sim.checkers.delivery import Delivery
from heliograph.sim.checkers.duplicates import Duplicates
from heliograph.sim.checkers.forgotten import Forgotten
from heliograph.sim.checkers.found import TopicsFound
from heliograph.sim.checkers.granted import TopicsGranted
from heliograph.sim.checkers.hidden import TopicsHidden
from heliograph.sim.checkers.isolation import Isolation
from heliograph.sim.checkers.kept import Kept
from heliograph.sim.checkers.keys import TopicKeys
from heliograph.sim.checkers.maps import Maps
from heliograph.sim.checkers.once import Once
from heliograph.sim.checkers.order import Order
from heliograph.sim.checkers.ordered import Ordered
from heliograph.sim.checkers.patience import Patience
from heliograph.sim.checkers.replicas import TopicReplicas
from heliograph.sim.checkers.resources import Resources
from heliograph.sim.checkers.responders import Responders
from heliograph.sim.checkers.spread import LoadSpread
from heliograph.sim.checkers.time import NetworkTime
from heliograph.sim.checkers.ways import Ways

CHECKERS: dict[str, type[Checker]] = {
    checker.name: checker
    for checker in (
        *(Delivery, Duplicates, Order, Isolation, Bounded, Convergence),
        *(Maps, Ways, Forgotten, NetworkTime, Covered, LoadSpread),
        *(Kept, Once, Ordered, Resources, Responders, Patience),
        *(TopicsFound, TopicsHidden, TopicsGranted, TopicKeys, TopicReplicas),
    )
}

__all__ = ["CHECKERS", "Checker", "Maps", "Order", "Violation", "Ways"]
