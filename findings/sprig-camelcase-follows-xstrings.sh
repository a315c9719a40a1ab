#!/usr/bin/env bash
# The version of another module decides what sprig's camelcase gives.
#
# Version: github.com/Masterminds/sprig v2.22.0 with github.com/huandu/xstrings v1.4.0, and with v1.5.0.
# Guess:   one version of sprig gives one text: HttpServer in both programs, since a minor version changes no result.
# Seen:    HttpServer with v1.4.0, and httpServer with v1.5.0. Go takes the highest version that any module of a program
#          requires, and Helm v4.1.0 requires v1.5.0.
# Matters: a template of Kalypso (sprig v2.22.0) names other objects once its engine is linked beside Helm's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cat > main.go <<'GO'
package main

import (
	"os"
	"text/template"

	"github.com/Masterminds/sprig"
)

func main() {
	text := template.Must(template.New("").Funcs(sprig.TxtFuncMap()).Parse(`{{ "http_server" | camelcase }}`))
	if err := text.Execute(os.Stdout, nil); err != nil {
		panic(err)
	}
}
GO
result() {
    cat > go.mod <<MOD
module finding

go 1.26.0

require (
	github.com/Masterminds/goutils v1.1.1
	github.com/Masterminds/semver v1.5.0
	github.com/Masterminds/sprig v2.22.0+incompatible
	github.com/google/uuid v1.6.0
	github.com/huandu/xstrings $1
	github.com/imdario/mergo v0.3.13
	github.com/mitchellh/copystructure v1.2.0
	golang.org/x/crypto v0.45.0
)
MOD
    rm -f go.sum
    go run -mod=mod . 2>/dev/null
}
old=$(result v1.4.0)
new=$(result v1.5.0)
echo "xstrings v1.4.0: $old"
echo "xstrings v1.5.0: $new"
[ "$old" = HttpServer ] && [ "$new" = httpServer ]
