"""Measure training schedules: checked parameters, paired timing, statistics, run records.

The experiments that use these tools on click-through models are modules of their own,
`erase_core.bench.throughput` and `erase_core.bench.trace`, so that importing the tools
imports no model, data set or profiler.
"""

from erase_core.bench.environment import commit_label, describe_device, device_name, versions
from erase_core.bench.parameters import ParameterError, conform_fields, from_parameters, require
from erase_core.bench.records import RunExistsError, RunRecord, RunRecordError
from erase_core.bench.statistics import Interval, Summary, ratio, summarize
from erase_core.bench.timing import Sample, compare

__all__ = [
    "Interval",
    "ParameterError",
    "RunExistsError",
    "RunRecord",
    "RunRecordError",
    "Sample",
    "Summary",
    "commit_label",
    "compare",
    "conform_fields",
    "describe_device",
    "device_name",
    "from_parameters",
    "ratio",
    "require",
    "summarize",
    "versions",
]
