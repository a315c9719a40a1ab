#!/usr/bin/env bash
# Flux expands `${var:+text}` the other way round than a shell does.
#
# Version: github.com/fluxcd/pkg/envsubst v1.8.0 (kustomize-controller's postBuild.substitute).
# Guess:   as in bash, `${var:+text}` is `text` where var has a value, and empty otherwise. An operator that the README
#          calls unsupported is an error, as `${var+text}` is.
# Seen:    a variable with a value keeps it, and an empty one becomes `text`. The library reads `:+` as `:-` and reports
#          nothing. `${var+text}` is an error indeed.
# Matters: `--proxy=${proxy:+yes}` renders `yes` where there is no proxy, and the proxy's address where there is one.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > go.mod <<'MOD'
module finding

go 1.26.0
MOD
cat > main.go <<'GO'
package main

import (
	"fmt"
	"os"

	"github.com/fluxcd/pkg/envsubst"
)

func main() {
	for _, text := range os.Args[1:] {
		result, err := envsubst.Eval(text, func(name string) (string, bool) {
			return os.LookupEnv(name)
		})
		fmt.Printf("%s: %q %v\n", text, result, err)
	}
}
GO
go get github.com/fluxcd/pkg/envsubst@v1.8.0 2>/dev/null
export filled=value empty=
bash=$(printf '%s and %s' "${filled:+text}" "${empty:+text}")
# shellcheck disable=SC2016 # the library expands these
seen=$(go run . '${filled:+text}' '${empty:+text}' '${filled+text}')
echo "bash: $bash"
echo "$seen"
[ "$bash" = 'text and ' ]
# shellcheck disable=SC2016 # the library expanded these
[ "$seen" = '${filled:+text}: "value" <nil>
${empty:+text}: "text" <nil>
${filled+text}: "${filled+text}" missing closing brace' ]
