"""Every cell of a profile's grid, then figures and report. `make reproduce` calls this; by hand:

    snakemake --cores 2 --keep-going --config profile=smoke
    snakemake --executor slurm --jobs 8 --keep-going --config profile=full criteo=PATH avazu=PATH

A cell that fails says so in its run.json and lets the others go on; `make reproduce` tries it again.
"""

import re
import shlex
import sys
from pathlib import Path

from notebooks.grid import RAW_KINDS, RUNS, load_plan
from notebooks.run import LOG, command

raw = {kind: config[kind] for kind in RAW_KINDS if kind in config}
plan = load_plan(config.get("profile", "smoke"), Path(config.get("runs", RUNS)), raw)
# Not part of a job's parameters: another path to the same interpreter repeats nothing.
python = shlex.quote(sys.executable)
cells = {cell.name: cell for cell in plan.all_cells}
datasets = {dataset.name: dataset for dataset in plan.datasets}


def names(found):
    return "|".join(map(re.escape, found)) or "(?!)"


# All, not only the report: what was deleted by hand is made again.
rule all:
    input:
        plan.report,
        [f"{cell.directory}/run.json" for cell in plan.all_cells],


rule dataset:
    output:
        directory(f"{plan.root}/data/{{dataset}}"),
    wildcard_constraints:
        dataset=names(datasets),
    message:
        "dataset {wildcards.dataset}"
    params:
        arguments=lambda wildcards: shlex.join(datasets[wildcards.dataset].arguments),
    shell:
        "{python} -m data_prep {params.arguments} --out {output:q} --quiet"


rule cell:
    input:
        lambda wildcards: [d.directory for d in [cells[wildcards.cell].dataset] if d],
    output:
        f"{plan.root}/{{cell}}/run.json",
    log:
        f"{plan.root}/{{cell}}/{LOG}",
    wildcard_constraints:
        cell=names(cell.name for cell in plan.cells),
    message:
        "{wildcards.cell}"
    params:
        command=lambda wildcards: shlex.join(command(cells[wildcards.cell])),
    threads: lambda wildcards: workflow.cores if cells[wildcards.cell].alone else 1
    resources:
        gpu=lambda wildcards: cells[wildcards.cell].gpus,
    shell:
        # Without a record nothing ran, and that is an error of the job itself.
        "OMP_NUM_THREADS={threads} {python} {params.command} > {log:q} 2>&1 || test -s {output:q}"


use rule cell as figures with:
    input:
        [f"{cell.directory}/run.json" for cell in plan.cells],
    output:
        f"{plan.root}/figures/run.json",
    log:
        f"{plan.root}/figures/{LOG}",
    message:
        "figures"
    params:
        command=shlex.join(command(plan.figures)) if plan.figures else "false",
    threads: 1
    resources:
        gpu=0,


rule report:
    input:
        [f"{cell.directory}/run.json" for cell in plan.all_cells],
    output:
        plan.report,
    message:
        "report"
    params:
        arguments=shlex.join([*plan.arguments, "--runs", str(plan.root.parent)]),
    shell:
        "{python} -m notebooks.report {params.arguments}"
