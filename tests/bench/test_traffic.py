"""What `python -m bench traffic` makes of its samples."""

from __future__ import annotations

from bench.traffic import Phase, Sample, figures


def test_an_operation_belongs_to_the_phase_in_which_it_was_due() -> None:
    """What a stretch of the loop held up would count for the phase after it, or of none."""
    reads = [Sample(i / 100, i / 100 + 0.001, False) for i in range(100)]
    late = Sample(0.995, 3.995, False)
    write = Sample(0.5, 0.52, True)
    others = [Sample(1.0, 9.0, False), Sample(-0.1, 9.0, True)]
    record = figures(Phase("copy", 0.0, 1.0), [*reads, late, write, *others])
    assert (record["seconds"], record["reads"], record["writes"]) == (1.0, 101, 1)
    assert (record["read_p50_ms"], record["read_p99_ms"], record["read_max_ms"]) == (1.0, 1.0, 3000)
    assert record["write_p50_ms"] == record["write_max_ms"] == 20.0
    assert figures(Phase("quiet", 50.0, 51.0), reads)["read_max_ms"] is None
