"""The measurements of the paper on broker discovery, in milliseconds.

In:    nothing.
Out:   its figures, as printed there.
State: none.
Not here: our own (topologies.py, costs.py).
Paper: [brokers] §9, Figures 2 to 7 and 12 to 14.
"""

from __future__ import annotations

from heliograph.evaluation.statistics import Summary

# Figures 3 to 7: from the request to the choice, brokers unconnected, by the site of the client.
UNCONNECTED = {
    "tallahassee": Summary(100, 528.5573, 7.3287, 550.421, 500.283, 0.73287),
    "cardiff": Summary(100, 539.9716, 58.8228, 654.811, 478.899, 5.8823),
    "minneapolis": Summary(100, 1306.393, 13.3551, 1351.214, 1285.102, 1.3355),
    "urbana": Summary(100, 410.0891, 10.5804, 440.121, 399.973, 1.058),
    "bloomington": Summary(100, 338.4112, 53.6215, 428.884, 286.026, 5.3622),
}
WAITING_SHARE_UNCONNECTED = 0.83  # Figure 2, client in Bloomington; the other shares are in figures only
MULTICAST = Summary(100, 41.3129, 6.0714, 71.416, 34.303, 0.60714)  # Figure 12
VALIDATION = Summary(100, 6.6104, 3.7214, 20.51, 4.0390, 0.3721)  # Figure 13
SIGN_SEAL_OPEN = Summary(100, 25.9497, 2.7311, 35.428, 22.862, 0.27311)  # Figure 14, whose maximum and minimum it swaps
