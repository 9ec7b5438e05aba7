# SPDX-License-Identifier: Apache-2.0
"""Parses the command line of the Python package: python -m sluice --help."""

import argparse
import sys
from typing import Any

import sluice

_EXAMPLES = """examples:
  python -m sluice doctor
  python -m sluice info
  python -m sluice verify
  python -m sluice verify tests/golden/hf_prefill.safetensors examples/data/*.safetensors
  python -m sluice verify --backend cuda --filter model tests/golden/hf_prefill.safetensors
  python -m sluice verify --against my_results.safetensors tests/golden/hf_prefill.safetensors
  python -m sluice bench --tokens 2048 --batch 8
  python -m sluice report --quick -o report.html

exit status: 0 done, 1 wrong results or an error, 2 unknown arguments, 3 not supported here
"""

_REPORT = """Runs accuracy and speed on this machine and writes one HTML page that needs nothing
else, and the same as JSON. Finished parts are kept beside the page until it is complete: after an
interruption the same command goes on. Numbers of other machines come from records (--results) and
are labelled with device, commit and version. Charts need matplotlib (sluice-gdn[report])."""


def _info(arguments: argparse.Namespace) -> int:
    for key, value in sluice.info().items():
        print(f"{key:18} {value}")
    for entry in sluice.implementations():
        here = "here" if entry["available"] else f"not here: {entry['requirement']}"
        print(f"{entry['name']:18} {entry['description']} ({here})")
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor import doctor

    return doctor()


def _device(arguments: argparse.Namespace) -> str:
    """Where tensors are to lie: as --device says, else as the backend needs them."""
    return arguments.device or ("cuda" if arguments.backend == "cuda" else "cpu")


def _add_backend(command: argparse.ArgumentParser, names: tuple[str, ...]) -> None:
    command.add_argument(
        "--backend", default="auto", choices=names, help="auto is cpu; cuda needs torch"
    )
    command.add_argument("--device", help="of several GPUs: cuda:1")


def _verify(arguments: argparse.Namespace) -> int:
    from . import cases

    device = _device(arguments)
    if arguments.files:
        report = cases.verify(
            arguments.files,
            device=device,
            implementation=arguments.backend,
            filter=arguments.filter,
            against=arguments.against,
        )
    else:
        report = cases.self_check(device, arguments.backend)
    print(report)
    if report.failed:
        return 1
    return 3 if report.unsupported else 0


def _bench(arguments: argparse.Namespace) -> int:
    from .bench import rows

    if arguments.threads is not None:
        sluice.set_num_threads(arguments.threads)
    for line in rows(
        _device(arguments),
        (arguments.heads, arguments.value_heads),
        arguments.dim,
        arguments.tokens,
        arguments.batch,
    ):
        print(line, flush=True)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    from .report.command import run

    return run(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sluice",
        description="Sluice: gated linear attention on CPUs and GPUs.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sluice {sluice.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    doctor = commands.add_parser(
        "doctor",
        help="what this machine has, which kernels will run, whether they are right (needs NumPy)",
    )
    doctor.set_defaults(run=_doctor)

    info = commands.add_parser("info", help="version, machine, implementations")
    info.set_defaults(run=_info)

    verify = commands.add_parser(
        "verify",
        help="compare case files with their recorded results (needs NumPy)",
        description="Runs the cases of FILE.. (docs/case-format.md) in float32 and compares "
        "with the recorded results. Without files: every operator on random inputs "
        "against the reference.",
    )
    verify.add_argument("files", nargs="*", metavar="FILE")
    _add_backend(verify, ("auto", "cpu", "cuda", "reference", "reference-chunked"))
    verify.add_argument("--filter", default="", help="only cases whose name contains this")
    verify.add_argument("--against", metavar="RESULTS", help="compute nothing: check these results")
    verify.set_defaults(run=_verify)

    bench = commands.add_parser(
        "bench",
        help="a quick look at prefill and decode times (needs NumPy)",
        description="Times prefill of one sequence and one decode step of a batch.",
    )
    _add_backend(bench, ("auto", "cpu", "cuda"))
    for name, default, text in (
        ("heads", 16, "key heads H"),
        ("value-heads", 32, "value heads HV"),
        ("dim", 128, "head dimensions K = V"),
        ("tokens", 1024, "tokens of the prefill"),
        ("batch", 4, "sequences of the decode step"),
    ):
        bench.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    bench.add_argument("--threads", type=int, help="threads of the CPU backend")
    bench.set_defaults(run=_bench)
    _add_report(commands)
    return parser


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="accuracy and speed as an HTML page and JSON (needs NumPy)",
        description=_REPORT,
    )
    report.add_argument(
        "-o", "--output", default="sluice-report.html", metavar="FILE.html", help="the page"
    )
    report.add_argument("--quick", action="store_true", help="fewer lengths, fewer repetitions")
    report.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    report.add_argument(
        "--results",
        action="append",
        metavar="DIR",
        help="records to show beside (default: benchmarks/results/h200 of a source tree)",
    )
    report.add_argument("--no-results", action="store_true", help="this machine's numbers alone")
    report.add_argument("--tool", help="the benchmark tool (default: $SLUICE_TOOL, PATH, a build)")
    report.add_argument("--commit", help="what to record as the commit measured")
    report.add_argument("--no-speed", action="store_true", help="accuracy and first call alone")
    report.add_argument("--no-charts", action="store_true", help="tables alone")
    report.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no part after so many seconds"
    )
    report.add_argument("--fresh", action="store_true", help="drop what an interrupted run left")
    report.add_argument("--from", dest="json", metavar="FILE.json", help="only draw a report again")
    report.set_defaults(run=_report)


def _text_of(error: Exception) -> str:
    """What an error says; of a package that is not installed, how to get it."""
    if isinstance(error, ModuleNotFoundError) and error.name in ("numpy", "ml_dtypes"):
        return (
            f"{error.name} is not installed, which this command needs: pip install 'sluice-gdn[numpy]' "
            "(the program `sluice doctor`, which the wheel installs, needs no package)"
        )
    return str(error)


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (sluice.Error, ValueError, OSError, ImportError) as error:
        print(f"sluice: {_text_of(error)}", file=sys.stderr)
        return 3 if isinstance(error, NotImplementedError | ImportError) else 1
