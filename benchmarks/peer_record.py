# SPDX-License-Identifier: Apache-2.0
"""Holds what the benchmarks beside peers share: their options, and the record that --out writes."""

import argparse
import json
import pathlib
from importlib.metadata import PackageNotFoundError, version

import sluice
import torch
from sluice_tools import whole_file


def parser(text):
    """A parser with the options of every such benchmark."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawTextHelpFormatter)
    made.add_argument("--commit", default="unknown")
    made.add_argument("--out")
    return made


def versions(packages):
    """Versions of the packages that are here; says which are not."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            print(f"{package} is not here")
    return found


def start(name, commit, packages):
    """An empty record with the versions of the packages that are here; sets the seed."""
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    return {"schema": f"sluice.bench.{name}/1", "device": torch.cuda.get_device_name(), "commit": commit,
            "sluice": sluice.__version__, "versions": versions(packages), "rows": []}


def write(record, path):
    """The record as a file, where one is asked for."""
    if path:
        whole_file.write(pathlib.Path(path), json.dumps(record, indent=1) + "\n")
