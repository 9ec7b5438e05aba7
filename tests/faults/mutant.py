# SPDX-License-Identifier: Apache-2.0
"""Builds the mutated sources out of a finished build: its own commands, for what a mutated file reaches.

Objects that include no mutated file are those of the finished build. CPU kernels are compiled for one
instruction set, and -O1 takes the place of -O3. What nvcc compiles stays as it is: the emulator has its kernels."""

import concurrent.futures
import os
import pathlib
import platform
import re
import subprocess
import sys

# One instruction set, the same on every machine that has it; the sanitized builds have the newest.
INSTRUCTION_SET = "-march=haswell -maes -mpclmul" if platform.machine() == "x86_64" else "-march=native"


class Mutant:
    """The mutated build: sources in `tree`, outputs in `out`."""

    def __init__(self, root: pathlib.Path, build: pathlib.Path, out: pathlib.Path, files: list[str]):
        self.root, self.build, self.out, self.tree = root, build, out, out / "tree"
        self.files = set(files)
        self.changed: set[str] = set()  # outputs of the finished build that are made anew

    def ninja(self, *arguments: str) -> str:
        done = subprocess.run(["ninja", "-C", self.build, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"faults: {self.build} cannot be built:\n{done.stdout[-6000:]}")
        return done.stdout

    def reached(self) -> set[str]:
        """Objects that include a mutated file."""
        objects, current = set(), ""
        for line in self.ninja("-t", "deps").splitlines():
            if line and not line.startswith(" "):
                current = line.split(": #deps")[0]
            elif line.strip():
                path = os.path.normpath(self.build / line.strip())
                if path.startswith(f"{self.root}/") and path[len(str(self.root)) + 1:] in self.files:
                    objects.add(current)
        return objects

    def in_tree(self, text: str) -> str:
        return re.sub(rf"{re.escape(str(self.root))}/(?=include|src|tests)", f"{self.tree}/", text)

    def united(self, command: str) -> str:
        """With a copy of what the build has made of several sources, which includes them by their paths."""
        source = re.search(r" -c (\S+/Unity/\S+)", command)
        if not source:
            return command
        copy = self.out / pathlib.Path(source[1]).relative_to(self.build)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(self.in_tree(pathlib.Path(source[1]).read_text()))
        return command.replace(source[1], str(copy))

    def compiled(self, command: str, made: str) -> str:
        """The command that compiles the mutated source."""
        command = re.sub(r"^\S*compile_seconds\.sh \S+ ", "", command)
        command = self.united(self.in_tree(command))
        command = re.sub(r" -M[DTF]( \S+\.o(\.d)?)?(?= )", "", command)
        command = command.replace(" -O3 ", " -O1 ").replace(f" -o {made} ", f" -o {self.out / made} ")
        if "/sluice_cpu.dir/" in made:
            command += f" {INSTRUCTION_SET} -DHWY_COMPILE_ONLY_STATIC"
        return f"{command} -w -include {self.tree}/tests/faults/planted.hpp"

    def mapped(self, command: str) -> str:
        """A link command with the outputs that are made anew."""
        words = [str(self.out / word) if word in self.changed else word for word in command.split(" ")]
        return " ".join(words).replace(f"-rpath,{self.build}/", f"-rpath,{self.out}/")

    def run(self, command: str) -> str | None:
        done = subprocess.run(command, shell=True, cwd=self.build, capture_output=True, text=True)
        return None if done.returncode == 0 else f"{command}\n{done.stdout}{done.stderr}"

    def all_done(self, commands: list[str], workers: int) -> None:
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            for trouble in pool.map(self.run, commands):
                if trouble:
                    sys.exit(f"faults: the mutated sources do not compile:\n{trouble[:6000]}")

    def make(self, targets: list[str]) -> None:
        self.ninja(*targets)  # what is not up to date in the finished build
        reached = self.reached()
        compiles, links = [], []
        for command in self.ninja("-t", "commands", *targets).splitlines():
            made = re.search(r" -o (\S+\.o) ", command)
            if made and " -c " in command:
                if "nvcc" not in command and (made[1] in reached or "/sluice_cpu.dir/" in made[1]):
                    self.changed.add(made[1])
                    compiles.append((os.path.getsize(self.build / made[1]), self.compiled(command, made[1])))
            else:
                links.append(command)
        for made in self.changed:
            (self.out / made).parent.mkdir(parents=True, exist_ok=True)
        # WHY the largest first: both cores are then busy to the end.
        ordered = [command for _, command in sorted(compiles, reverse=True)]
        print(f"faults: compiling {len(ordered)} files", flush=True)
        self.all_done(ordered, os.cpu_count() or 1)
        for command in links:
            self.link(command)

    def link(self, command: str) -> None:
        if not any(word in self.changed for word in command.split(" ")):
            return
        made = re.findall(r"cmake_symlink_library (\S+) +(\S+) (\S+)", command)
        made = list(made[0]) if made else re.findall(r"(?: -o|/ar qc) (\S+)", command)
        self.changed.update(made)
        for one in made:
            (self.out / one).parent.mkdir(parents=True, exist_ok=True)
        self.all_done([self.mapped(command)], 1)

    def make_python(self, python: pathlib.Path) -> None:
        """The package with its extension, in out/package."""
        package = self.out / "package"
        cuda = self.out / "src/cuda/CMakeFiles"  # what says that the library has the CUDA half
        if (self.build / "src/cuda/CMakeFiles").exists():
            cuda.mkdir(parents=True, exist_ok=True)
        flags = f"-O1 -w -include {self.tree}/tests/faults/planted.hpp"
        self.all_done([
            f"cmake -S {self.tree}/python -B {self.out}/python -G Ninja -DSLUICE_BUILT={self.out} "
            f"-DCMAKE_BUILD_TYPE=None -DPython_EXECUTABLE={python} '-DCMAKE_CXX_FLAGS={flags}'",
            f"ninja -C {self.out}/python _core",
            f"rm -rf {package} && mkdir {package} && cp -r {self.tree}/python/sluice {self.tree}/python/sluice_tools "
            f"{package} && cp {self.out}/python/_core.abi3.so {package}/sluice && "
            f"cp {self.tree}/ops/manifest.json {package}/sluice_tools/report && "
            f"cp {self.tree}/conformance/check.py {package}/sluice_tools"], 1)
