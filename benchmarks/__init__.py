"""Benchmarks: ``python -m benchmarks NAME [--quick] [--json]``, from the repository root.

In:    the broker of this checkout, and those peers (nats-server, mosquitto, redis-server) that are installed.
Out:   one result per benchmark: ours, peers, ratios, rounds, spread, budget, machine.
State: none; servers live in a temporary folder and end with the run.
Not here: tests. A budget that is missed is reported, not raised; only a wrong run (a lost, swapped or altered frame,
a broker of ours that fails) exits non-zero.

Reading order: route.py (what is measured), cases.py (who publishes what to whom), flow.py and sinks.py (how load is
made and checked), peers/ (how each system is started and spoken to).
"""
