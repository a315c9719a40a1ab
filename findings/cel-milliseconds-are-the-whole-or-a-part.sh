#!/usr/bin/env bash
# Google's CEL in Go and in C++ differ on the milliseconds of a duration, and on a timestamp's text.
#
# Versions: cel.dev/cel-go v0.32.0, and cel-expr-python 0.1.3, Google's Python package of its C++ evaluator.
# Guess:    both follow one specification, so that getMilliseconds of 1.5 seconds is 1500 in both: getMinutes of 90
#           minutes is 90 too. The text of a timestamp is in UTC in both.
# Seen:     getMilliseconds is 1500 in Go, and 500 in C++, the part below a second. The specification means the part:
#           the issue cel-expr/cel-go 453 says so since 2021. string() of a timestamp keeps its offset in Go, and
#           turns it to UTC in C++.
# Matters:  kube-apiserver evaluates rules with cel-go. A test of such a rule in Python can give another answer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check cel-expr-python==0.1.3
cat > main.py <<'PYTHON'
import sys

from cel_expr_python import cel

for text in sys.argv[1:]:
    print(f"c++ {text}: {cel.NewEnv().compile(text).eval().plain_value()}")
PYTHON
cat > go.mod <<'MOD'
module finding

go 1.26.0
MOD
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"cel.dev/cel-go/cel"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	environment := must(cel.NewEnv())
	for _, text := range os.Args[1:] {
		tree, issues := environment.Compile(text)
		if issues.Err() != nil {
			panic(issues.Err())
		}
		result, _, err := must(environment.Program(tree)).Eval(map[string]any{})
		fmt.Printf("go  %s: %v\n", text, must(result, err))
	}
}
GO
go get cel.dev/cel-go@v0.32.0 2>/dev/null
go mod tidy 2>/dev/null
texts=("duration('90m').getMinutes()" "duration('1.5s').getMilliseconds()" "string(timestamp('2026-01-01T02:00:00+02:00'))")
seen=$(go run . "${texts[@]}" && venv/bin/python main.py "${texts[@]}")
echo "$seen"
[ "$seen" = "go  duration('90m').getMinutes(): 90
go  duration('1.5s').getMilliseconds(): 1500
go  string(timestamp('2026-01-01T02:00:00+02:00')): 2026-01-01T02:00:00+02:00
c++ duration('90m').getMinutes(): 90
c++ duration('1.5s').getMilliseconds(): 500
c++ string(timestamp('2026-01-01T02:00:00+02:00')): 2026-01-01T00:00:00Z" ]
