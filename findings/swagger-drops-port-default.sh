#!/usr/bin/env bash
# The two OpenAPI documents that Kubernetes publishes do not merge a Service's ports alike.
#
# Versions: k8s.io/kubernetes v1.36.3, k8s.io/kube-openapi v0.0.0-20260317180543-43fb72c5454a,
#           sigs.k8s.io/structured-merge-diff/v6 v6.3.3.
# Guess:    api/openapi-spec/swagger.json (v2) and api/openapi-spec/v3 describe the same types, so that a merge by
#           either lays a port without a protocol over the stored port, which has the default TCP.
# Seen:     swagger.json has no defaults. Its ports are keyed by port and protocol, and a missing protocol is a key of
#           its own: the merge has two ports. By the v3 document the merge has one port.
# Matters:  a tool that computes a server-side apply without a cluster needs the v3 documents.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder" && rm -rf "$folder"' EXIT
cd "$folder"
cat > go.mod <<'MOD'
module finding

go 1.26.0
MOD
cat > main.go <<'GO'
package main

import (
	"encoding/json"
	"fmt"
	"os"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func v2(file string) *schema.Schema {
	document := must(openapi_v2.ParseDocument(must(os.ReadFile(file))))
	return must(schemaconv.ToSchema(must(proto.NewOpenAPIData(document))))
}

func v3(file string) *schema.Schema {
	var document struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(must(os.ReadFile(file)), &document); err != nil {
		panic(err)
	}
	return must(schemaconv.ToSchemaFromOpenAPI(document.Components.Schemas, false))
}

func service(port map[string]any) map[string]any {
	return map[string]any{"spec": map[string]any{"ports": []any{port}}}
}

// merge lays a manifest without a protocol over what a server stored, which has the default.
func merge(name string, types *schema.Schema) {
	parser := typed.Parser{Schema: *types}
	parse := func(object map[string]any) *typed.TypedValue {
		return must(parser.Type("io.k8s.api.core.v1.Service").FromUnstructured(object))
	}
	live := parse(service(map[string]any{"port": int64(80), "protocol": "TCP"}))
	manifest := parse(service(map[string]any{"port": int64(80), "targetPort": int64(8080)}))
	merged := must(live.Merge(manifest)).AsValue().Unstructured().(map[string]any)
	ports := merged["spec"].(map[string]any)["ports"].([]any)
	fmt.Printf("%s: %d %s\n", name, len(ports), must(json.Marshal(ports)))
}

func main() {
	merge("v2", v2(os.Args[1]+"/api/openapi-spec/swagger.json"))
	merge("v3", v3(os.Args[1]+"/api/openapi-spec/v3/api__v1_openapi.json"))
}
GO
go get k8s.io/kube-openapi@v0.0.0-20260317180543-43fb72c5454a sigs.k8s.io/structured-merge-diff/v6@v6.3.3 2>/dev/null
go mod tidy 2>/dev/null
kubernetes=$(go mod download -json k8s.io/kubernetes@v1.36.3 | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
seen=$(go run . "$kubernetes")
echo "$seen"
[ "$seen" = 'v2: 2 [{"port":80,"protocol":"TCP"},{"port":80,"targetPort":8080}]
v3: 1 [{"port":80,"protocol":"TCP","targetPort":8080}]' ]
