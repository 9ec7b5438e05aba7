#!/bin/sh
# Launches the compiler of CUDA kernels: runs the command after it with ptxas made to speak, keeps what
# it says about registers, stack and spills beside the object (OBJECT.ptxas, for
# scripts/cuda_resources.py) and passes everything else on, performance warnings included.
object= previous=
for argument in "$@"; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@"
said=$object.ptxas.tmp
"$@" -Xptxas=-v 2>"$said"
status=$?
ours='^ptxas info *: *\(Compiling entry\|Function properties\|Used \)\|bytes stack frame'
quiet='^ptxas info *: *\(Compile time\|[0-9]* bytes gmem\|Overriding\)'
grep -v -e "$ours" -e "$quiet" "$said" >&2
if [ $status -eq 0 ]; then
  grep -e "$ours" "$said" >"$object.ptxas"
else
  rm -f "$object.ptxas"
fi
rm -f "$said"
exit $status
